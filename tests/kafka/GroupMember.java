import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic as a member of a group until it is killed: BOOTSTRAP GROUP TOPIC PROTOCOL. */
public class GroupMember {
  public static void main(String[] args) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", args[0]);
    settings.put("group.id", args[1]);
    settings.put("group.protocol", args[3]);
    settings.put("client.id", "java-7");
    settings.put("auto.commit.interval.ms", 300);
    ByteArrayDeserializer bytes = new ByteArrayDeserializer();
    KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes);
    consumer.subscribe(List.of(args[2]));
    while (true) {
      consumer.poll(Duration.ofMillis(100));
    }
  }
}

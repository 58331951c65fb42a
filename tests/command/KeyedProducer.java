import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes a record for each key on stdin, in hex, and prints its partition: BOOTSTRAP TOPIC. */
public class KeyedProducer {
  public static void main(String[] args) throws Exception {
    var serializer = new ByteArraySerializer();
    Map<String, Object> settings = Map.of("bootstrap.servers", args[0]);
    try (var producer = new KafkaProducer<>(settings, serializer, serializer)) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (String line : new BufferedReader(new InputStreamReader(System.in)).lines().toList()) {
        byte[] key = HexFormat.of().parseHex(line);
        sent.add(producer.send(new ProducerRecord<>(args[1], key, key)));
      }
      for (Future<RecordMetadata> each : sent) {
        System.out.println(each.get().partition());
      }
    }
  }
}

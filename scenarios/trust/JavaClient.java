import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Commits and reads offsets as Kafka's own consumer does.
 *
 * <p>BOOTSTRAP commit GROUP TOPIC {OFFSET METADATA}..., from partition 0 on; or BOOTSTRAP read GROUP
 * TOPIC PARTITIONS, which prints partition, offset and metadata of each, with tabs between them.
 */
public class JavaClient {
  public static void main(String[] words) {
    Properties conf = new Properties();
    conf.put("bootstrap.servers", words[0]);
    conf.put("group.id", words[2]);
    conf.put("enable.auto.commit", "false");
    conf.put("key.deserializer", ByteArrayDeserializer.class.getName());
    conf.put("value.deserializer", ByteArrayDeserializer.class.getName());
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(conf)) {
      if (words[1].equals("commit")) {
        Map<TopicPartition, OffsetAndMetadata> commits = new HashMap<>();
        for (int at = 4; at < words.length; at += 2) {
          long offset = Long.parseLong(words[at]);
          commits.put(
              new TopicPartition(words[3], (at - 4) / 2), new OffsetAndMetadata(offset, words[at + 1]));
        }
        consumer.assign(commits.keySet());
        consumer.commitSync(commits);
        return;
      }
      Set<TopicPartition> asked = new HashSet<>();
      for (int number = 0; number < Integer.parseInt(words[4]); number++) {
        asked.add(new TopicPartition(words[3], number));
      }
      consumer
          .committed(asked)
          .forEach(
              (place, found) -> {
                if (found != null) {
                  System.out.println(
                      place.partition() + "\t" + found.offset() + "\t" + found.metadata());
                }
              });
    }
  }
}

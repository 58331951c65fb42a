import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Rejects each record of a topic in a share group: BOOTSTRAP TOPIC GROUP LETTERS COPY. */
public class ShareLetters {
  public static void main(String[] args) throws Exception {
    String bootstrap = args[0], group = args[2];
    Map<String, String> settings =
        Map.of(
            "share.auto.offset.reset", "earliest",
            "errors.deadletterqueue.topic.name", args[3],
            "errors.deadletterqueue.copy.record.enable", args[4]);
    var changes =
        settings.entrySet().stream()
            .map(each -> new ConfigEntry(each.getKey(), each.getValue()))
            .map(entry -> new AlterConfigOp(entry, AlterConfigOp.OpType.SET))
            .toList();
    try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
      var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
      admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }
    Map<String, Object> consumer =
        Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "share.acknowledgement.mode", "explicit",
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
    try (var reading = new KafkaShareConsumer<byte[], byte[]>(consumer)) {
      reading.subscribe(List.of(args[1]));
      while (true) {
        for (var record : reading.poll(Duration.ofSeconds(1)))
          reading.acknowledge(record, AcknowledgeType.REJECT);
        reading.commitSync();
      }
    }
  }
}

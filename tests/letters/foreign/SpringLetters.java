import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.ListenerExecutionFailedException;

/** Publishes a dead letter of orders, and one that is dead again from there: BOOTSTRAP. */
public class SpringLetters {
  static final TopicPartition LETTERS = new TopicPartition("orders.DLT", 0);

  public static void main(String[] args) {
    Map<String, Object> producer =
        Map.of(
            "bootstrap.servers", args[0],
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class);
    var template = new KafkaTemplate<>(new DefaultKafkaProducerFactory<byte[], byte[]>(producer));
    var recoverer = new DeadLetterPublishingRecoverer(template, (record, error) -> LETTERS);
    byte[] value = "{\"documents\":[{\"id\":1}]}".getBytes();
    recoverer.accept(
        new ConsumerRecord<>("orders", 0, 300L, "k".getBytes(), value),
        new ListenerExecutionFailedException(
            "Listener failed", "indexer", new IllegalStateException("boom")));
    var again = new ConsumerRecord<>("orders.DLT", 0, 1L, "k".getBytes(), "v".getBytes());
    headers(args[0]).forEach(again.headers()::add);
    recoverer.accept(
        again,
        new ListenerExecutionFailedException(
            "Listener failed", "indexer2", new IllegalStateException("boom2")));
    template.flush();
    System.exit(0);
  }

  /** Headers of the first letter. */
  static Headers headers(String bootstrap) {
    Map<String, Object> consumer =
        Map.of(
            "bootstrap.servers", bootstrap,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
    try (var reading = new KafkaConsumer<byte[], byte[]>(consumer)) {
      reading.assign(List.of(LETTERS));
      reading.seekToBeginning(List.of(LETTERS));
      while (true) {
        for (var record : reading.poll(Duration.ofSeconds(1))) return record.headers();
      }
    }
  }
}

import io.smallrye.mutiny.operators.multi.processors.UnicastProcessor;
import io.smallrye.reactive.messaging.kafka.IncomingKafkaRecord;
import io.smallrye.reactive.messaging.kafka.fault.KafkaDeadLetterQueue;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.eclipse.microprofile.reactive.messaging.Message;
import org.eclipse.microprofile.reactive.messaging.Metadata;

/** Sends a dead letter of orders, and one that is dead again from there: BOOTSTRAP LETTERS. */
public class SmallRyeLetters {
  static ProducerRecord<byte[], byte[]> letter;

  public static void main(String[] args) throws Exception {
    Map<String, Object> producer =
        Map.of(
            "bootstrap.servers", args[0],
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class);
    UnicastProcessor<Message<?>> letters = UnicastProcessor.create();
    var queue = new KafkaDeadLetterQueue("orders", args[1], null, letters);
    letters.subscribe().with(SmallRyeLetters::take);
    var first = new ConsumerRecord<>("orders", 0, 300L, "k".getBytes(), "{\"id\":1}".getBytes());
    first.headers().add("trace", "t".getBytes());
    try (var sending = new KafkaProducer<byte[], byte[]>(producer)) {
      fail(queue, first, new IllegalStateException("boom", new RuntimeException("deeper")));
      sending.send(letter).get();
      var again = new ConsumerRecord<>(args[1], 0, 0L, letter.key(), letter.value());
      letter.headers().forEach(again.headers()::add);
      fail(queue, again, new IllegalStateException("boom2"));
      sending.send(letter).get();
    }
    System.exit(0);
  }

  static void fail(
      KafkaDeadLetterQueue queue, ConsumerRecord<byte[], byte[]> record, Exception error) {
    var incoming = new IncomingKafkaRecord<>(record, "orders", 0, null, null, false, false);
    queue.handle(incoming, error, Metadata.empty()).subscribe().with(done -> {});
  }

  @SuppressWarnings("unchecked")
  static void take(Message<?> message) {
    letter = (ProducerRecord<byte[], byte[]>) message.getPayload();
  }
}

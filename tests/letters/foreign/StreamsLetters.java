import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;

/** Fails at each record of sin, until it is killed: BOOTSTRAP FOLDER. */
public class StreamsLetters {
  public static void main(String[] args) {
    Properties settings = new Properties();
    settings.put("application.id", "streams-letters");
    settings.put("bootstrap.servers", args[0]);
    settings.put("state.dir", args[1]);
    settings.put("auto.offset.reset", "earliest");
    settings.put("errors.dead.letter.queue.topic.name", "streams.dlq");
    settings.put(
        "processing.exception.handler",
        "org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler");
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream("sin", Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .foreach(
            (key, value) -> {
              throw new IllegalStateException("boom");
            });
    new KafkaStreams(builder.build(), settings).start();
  }
}

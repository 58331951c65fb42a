import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;

/** Reads a topic as a member of a streams group until it is killed: BOOTSTRAP GROUP TOPIC FOLDER. */
public class StreamsMember {
  public static void main(String[] args) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", args[0]);
    settings.put("application.id", args[1]);
    settings.put("state.dir", args[3]);
    settings.put("group.protocol", "streams");
    settings.put("auto.offset.reset", "earliest");
    settings.put("commit.interval.ms", 100);
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(args[2], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .foreach((key, value) -> {});
    new KafkaStreams(builder.build(), settings).start();
  }
}

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.Executors;

/**
 * A service as drainer's handler: it puts documents into an index, one per call or many.
 *
 * <pre>
 * java -cp 'jackson/*' Service.java
 * drainer run --topic orders --group indexer -b broker:9092 --split documents --key payload.id \
 *     --handler http --set url=http://localhost:8080/drain --set batch=100
 * </pre>
 *
 * DrainController and its records are as in Spring, which makes the rest of this file needless. PORT
 * is the port, and INDEX the file that stands for the index.
 */
public class Service {

    @JsonIgnoreProperties(ignoreUnknown = true)
    record Document(String title, boolean locked) {}

    /** A sub-message; a single call is one of them. Its id is the same in each attempt. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    record Item(String id, String key, int attempt, Document payload) {}

    @JsonIgnoreProperties(ignoreUnknown = true)
    record Call(String id, String key, int attempt, Document payload, List<Item> batch) {}

    /** {@code result} is done, retry, skip, give-up or fail; {@code after} is in seconds. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Result(String id, String result, Double after, String text) {}

    record Answer(List<Result> results) {}

    // @RestController
    static class DrainController {
        private final Path index;

        DrainController(Path index) {
            this.index = index;
        }

        // @PostMapping("/drain")
        Object drain(/* @RequestBody */ Call call) {
            if (call.batch() == null) {
                return put(new Item(call.id(), call.key(), call.attempt(), call.payload()));
            }
            // One result for each item: an item that is not done holds up only its own lane.
            return new Answer(call.batch().stream().map(this::put).toList());
        }

        /** Handles one document. It may come again, so put it under its id rather than add it. */
        private Result put(Item item) {
            Document document = item.payload();
            if (document == null || document.title() == null) {
                return new Result(item.id(), "give-up", null, "the document has no title");
            }
            if (document.locked() && item.attempt() < 3) {
                return new Result(item.id(), "retry", 0.05, "the document is locked");
            }
            try {
                String line = item.id() + " " + item.key() + "\n";
                Files.writeString(index, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException e) {
                return new Result(item.id(), "fail", null, e.toString());
            }
            return new Result(item.id(), "done", null, null); // must be true: after the write
        }
    }

    public static void main(String[] arguments) throws IOException {
        var environment = System.getenv();
        var index = Path.of(environment.getOrDefault("INDEX", "index.txt"));
        var port = Integer.parseInt(environment.getOrDefault("PORT", "8080"));
        var controller = new DrainController(index);
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/drain", exchange -> answer(exchange, controller));
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    private static void answer(HttpExchange exchange, DrainController controller) throws IOException {
        try {
            var call = JSON.readValue(exchange.getRequestBody(), Call.class);
            var body = JSON.writeValueAsBytes(controller.drain(call));
            exchange.getResponseHeaders().set("Content-Type", "application/json");
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
        } catch (JsonProcessingException e) {
            exchange.sendResponseHeaders(400, -1); // the sub-message's own fault
        } finally {
            exchange.close();
        }
    }
}

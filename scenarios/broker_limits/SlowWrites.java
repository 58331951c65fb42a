import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

/**
 * Lets anyone do anything, and takes its time over each write: a request handler thread is busy for
 * just so long with a produce request, whatever else the machine does.
 */
public class SlowWrites implements Authorizer {
    private final ThreadLocal<Object> last = new ThreadLocal<>(); // asked about more than once
    private long millis;

    @Override
    public void configure(Map<String, ?> settings) {
        millis = Long.parseLong((String) settings.get("slow.writes.ms"));
    }

    @Override
    public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo server) {
        return Collections.emptyMap();
    }

    @Override
    public List<AuthorizationResult> authorize(
            AuthorizableRequestContext request, List<Action> actions) {
        if (request.requestType() == ApiKeys.PRODUCE.id && request != last.get()) {
            last.set(request);
            try {
                Thread.sleep(millis);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }
        return Collections.nCopies(actions.size(), AuthorizationResult.ALLOWED);
    }

    @Override
    public List<? extends CompletionStage<AclCreateResult>> createAcls(
            AuthorizableRequestContext request, List<AclBinding> bindings) {
        throw new UnsupportedOperationException();
    }

    @Override
    public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(
            AuthorizableRequestContext request, List<AclBindingFilter> filters) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Iterable<AclBinding> acls(AclBindingFilter filter) {
        return Collections.emptyList();
    }

    @Override
    public void close() {}
}

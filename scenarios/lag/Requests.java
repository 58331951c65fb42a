import java.util.TreeMap;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints how many requests of each kind a broker has got, by its metrics (JMX). */
public class Requests {
    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://" + arguments[0] + "/jmxrmi";
        try (var connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection broker = connector.getMBeanServerConnection();
            var wanted = new ObjectName("kafka.network:type=RequestMetrics,name=RequestsPerSec,*");
            var counts = new TreeMap<String, Long>();
            for (ObjectName name : broker.queryNames(wanted, null)) {
                long count = (Long) broker.getAttribute(name, "Count");
                counts.merge(name.getKeyProperty("request"), count, Long::sum);
            }
            counts.forEach((request, count) -> System.out.println(request + " " + count));
        }
    }
}

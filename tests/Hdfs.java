import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS with one name node and one data node in a folder. It prints the name node's HTTP address. */
public class Hdfs {
    public static void main(String[] words) throws Exception {
        Configuration conf = new Configuration();
        conf.set("hdfs.minidfs.basedir", words[0]);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).build();
        cluster.waitActive();
        var address = cluster.getNameNode().getHttpAddress();
        System.out.println(address.getHostString() + ":" + address.getPort());
        Thread.currentThread().join();
    }
}

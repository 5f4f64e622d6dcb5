import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN with two nodes, and HDFS. The argument is a folder for their files and settings. Ends with its standard input. */
public class HadoopCluster {
    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        Configuration settings = new YarnConfiguration();
        // The machine of a test may be full, and its processes are not those of a node.
        settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        settings.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9");
        settings.set(
            "yarn.resourcemanager.scheduler.class",
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
        settings.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        settings.setInt("yarn.minicluster.yarn.nodemanager.resource.memory-mb", 4096);
        MiniYARNCluster yarn = new MiniYARNCluster("yarn", 2, 1, 1);
        yarn.init(settings);
        yarn.start();
        if (!yarn.waitForNodeManagersToConnect(120_000)) {
            throw new IllegalStateException("the nodes did not connect");
        }
        try (OutputStream file = new FileOutputStream(new File(folder, "yarn-site.xml"))) {
            yarn.getConfig().writeXml(file);
        }
        MiniDFSCluster files =
            new MiniDFSCluster.Builder(new Configuration(), new File(folder, "hdfs")).numDataNodes(1).build();
        files.waitActive();
        System.out.println("READY " + files.getURI());
        System.in.read();
        files.shutdown();
        yarn.stop();
        System.exit(0);
    }
}

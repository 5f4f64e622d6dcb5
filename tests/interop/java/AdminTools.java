import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools and calls of its Admin client, many in one JVM.
 *
 * A line of standard input is a command: the class of a tool, or "admin" and the name of a call below, then its
 * arguments, all separated by tabs. A line of standard output that begins with DONE is its end: exit code, output and errors in base64. Other lines
 * are the logging of the clients.
 */
public class AdminTools {
    /** Thrown where a tool would end the JVM. Some of them catch it and end once more: the first end counts. */
    static final class Ended extends RuntimeException {
    }

    static Integer code;
    static String output;
    static String errors;
    static ByteArrayOutputStream standardOutput;
    static ByteArrayOutputStream standardError;

    static void end(int with) {
        if (code == null) {
            code = with;
            System.out.flush();
            System.err.flush();
            output = Base64.getEncoder().encodeToString(standardOutput.toByteArray());
            errors = Base64.getEncoder().encodeToString(standardError.toByteArray());
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        Exit.setExitProcedure((with, message) -> {
            end(with);
            throw new Ended();
        });
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Admin admin = Admin.create(settings)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split("\t", -1);
                code = null;
                standardOutput = new ByteArrayOutputStream();
                standardError = new ByteArrayOutputStream();
                System.setOut(new PrintStream(standardOutput, true, StandardCharsets.UTF_8));
                System.setErr(new PrintStream(standardError, true, StandardCharsets.UTF_8));
                end(run(admin, words));
                System.setOut(out);
                System.setErr(err);
                out.println("DONE " + code + " " + output + "." + errors + ".");
                out.flush();
            }
        }
    }

    static int run(Admin admin, String[] words) {
        String[] rest = Arrays.copyOfRange(words, 1, words.length);
        try {
            if (words[0].equals("admin")) {
                System.out.println(call(admin, rest));
            } else {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
            }
            return 0;
        } catch (Throwable thrown) {
            for (Throwable each = thrown; each != null; each = each.getCause()) {
                if (each instanceof Ended) {
                    return 0;
                }
            }
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            System.err.println(cause.getClass().getSimpleName() + ": " + cause.getMessage());
            return 1;
        }
    }

    static Object call(Admin admin, String[] words) throws Exception {
        switch (words[0]) {
            case "describe-configs":
                return described(admin, resource(words[1], words[2]), Set.of(words[3].split(",")));
            case "set-config":
                return set(admin, resource(words[1], words[2]), words[3], words[4], AlterConfigOp.OpType.SET);
            case "append-config":
                return set(admin, resource(words[1], words[2]), words[3], words[4], AlterConfigOp.OpType.APPEND);
            case "delete-config":
                return set(admin, resource(words[1], words[2]), words[3], "", AlterConfigOp.OpType.DELETE);
            case "list-config-resources": {
                Set<String> found = new TreeSet<>();
                Set<ConfigResource.Type> wanted = Set.of(ConfigResource.Type.valueOf(words[1]));
                admin.listConfigResources(wanted, new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                    .all().get().forEach(each -> found.add(each.name()));
                return found;
            }
            case "elect-leaders": {
                TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
                Map<TopicPartition, Optional<Throwable>> result =
                    admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
                return result.get(partition).map(error -> error.getClass().getSimpleName()).orElse("elected");
            }
            case "reassign": {
                TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
                List<Integer> replicas = Arrays.stream(words[3].split(",")).map(Integer::parseInt).toList();
                admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(replicas))))
                    .all().get();
                return admin.listPartitionReassignments().reassignments().get();
            }
            case "log-dirs": {
                Map<String, Object> found = new TreeMap<>();
                admin.describeLogDirs(List.of(Integer.parseInt(words[1]))).allDescriptions().get()
                    .forEach((node, directories) -> directories.forEach((path, description) -> {
                        description.replicaInfos().forEach((partition, info) -> {
                            if (partition.topic().equals(words[2])) {
                                found.put(partition.toString(), info.size() > 0);
                            }
                        });
                        found.put("~space", description.totalBytes().isPresent());
                    }));
                return found;
            }
            case "update-feature":
                admin.updateFeatures(
                    Map.of(words[1], new FeatureUpdate(Short.parseShort(words[2]), FeatureUpdate.UpgradeType.UPGRADE)),
                    new UpdateFeaturesOptions()).all().get();
                return "updated";
            case "feature":
                return admin.describeFeatures().featureMetadata().get().finalizedFeatures().get(words[1]);
            case "quotas":
                return admin.describeClientQuotas(org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities().get();
            case "delete-offsets": {
                admin.deleteConsumerGroupOffsets(words[1], Set.of(new TopicPartition(words[2], 0))).all().get();
                return "deleted";
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static ConfigResource resource(String kind, String name) {
        return new ConfigResource(ConfigResource.Type.valueOf(kind), name);
    }

    static Object set(Admin admin, ConfigResource resource, String key, String value, AlterConfigOp.OpType how)
        throws Exception {
        Collection<AlterConfigOp> changes = List.of(new AlterConfigOp(new ConfigEntry(key, value), how));
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return "altered";
    }

    static Object described(Admin admin, ConfigResource resource, Set<String> keys) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        Config config = admin.describeConfigs(List.of(resource), options).all().get().get(resource);
        Map<String, String> found = new TreeMap<>();
        for (ConfigEntry entry : config.entries()) {
            if (keys.contains(entry.name())) {
                StringBuilder synonyms = new StringBuilder();
                entry.synonyms().forEach(each ->
                    synonyms.append(" ").append(each.name()).append("=").append(each.value()).append("/").append(each.source()));
                found.put(entry.name(), entry.value() + "/" + entry.source() + "/" + entry.isReadOnly() + synonyms);
            }
        }
        return found;
    }
}

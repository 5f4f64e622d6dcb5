import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo;
import org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo;
import org.apache.kafka.streams.state.HostInfo;

/**
 * Lines of JSON on stdin: {"kind", "data"} is answered with "hex", what Kafka Streams' own classes write; {"kind", "data",
 * "ours"} with "equal", whether they read the bytes of "ours" as the same values.
 */
public class EncodeUserData {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode node = (ObjectNode) mapper.readTree(line);
            boolean says = node.get("kind").asText().equals("subscription");
            Object info = says ? subscription(node.get("data")) : assignment(node.get("data"));
            if (node.has("ours")) {
                ByteBuffer ours = ByteBuffer.wrap(HexFormat.of().parseHex(node.get("ours").asText()));
                Object read = says ? SubscriptionInfo.decode(ours) : AssignmentInfo.decode(ours);
                node.put("equal", info.equals(read));
            } else {
                ByteBuffer data = says ? ((SubscriptionInfo) info).encode() : ((AssignmentInfo) info).encode();
                byte[] bytes = new byte[data.remaining()];
                data.get(bytes);
                node.put("hex", HexFormat.of().formatHex(bytes));
            }
            System.out.println(mapper.writeValueAsString(node));
        }
    }

    static SubscriptionInfo subscription(JsonNode data) {
        Map<TaskId, Long> sums = new LinkedHashMap<>();
        for (JsonNode each : data.get("offset_sums")) {
            sums.put(new TaskId(each.get(0).asInt(), each.get(1).asInt()), each.get(2).asLong());
        }
        Map<String, String> tags = new LinkedHashMap<>();
        for (JsonNode each : data.get("client_tags")) {
            tags.put(each.get(0).asText(), each.get(1).asText());
        }
        return new SubscriptionInfo(
            data.get("version").asInt(), data.get("newest_version").asInt(),
            new ProcessId(UUID.fromString(data.get("process_id").asText())), data.get("endpoint").asText(), sums,
            (byte) data.get("unique").asInt(), data.get("error").asInt(), tags);
    }

    static AssignmentInfo assignment(JsonNode data) {
        List<TaskId> active = new ArrayList<>();
        for (JsonNode each : data.get("active")) {
            active.add(new TaskId(each.get(0).asInt(), each.get(1).asInt()));
        }
        Map<TaskId, Set<TopicPartition>> standby = new LinkedHashMap<>();
        for (JsonNode each : data.get("standby")) {
            standby.put(new TaskId(each.get(0).asInt(), each.get(1).asInt()), places(each.get(2)));
        }
        AssignmentInfo info = new AssignmentInfo(
            data.get("version").asInt(), data.get("common_version").asInt(), active, standby,
            hosts(data.get("active_by_host")), hosts(data.get("standby_by_host")), data.get("error").asInt());
        info.setNextRebalanceTime(data.get("next_rebalance_ms").asLong());
        return info;
    }

    static Map<HostInfo, Set<TopicPartition>> hosts(JsonNode entries) {
        Map<HostInfo, Set<TopicPartition>> found = new LinkedHashMap<>();
        for (JsonNode each : entries) {
            found.put(new HostInfo(each.get(0).asText(), each.get(1).asInt()), places(each.get(2)));
        }
        return found;
    }

    static Set<TopicPartition> places(JsonNode entries) {
        Set<TopicPartition> found = new LinkedHashSet<>();
        for (JsonNode each : entries) {
            found.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt()));
        }
        return found;
    }
}

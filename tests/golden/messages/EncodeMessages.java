import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** JSON lines {"name", "version", "data"} on stdin; the same lines with "hex", as Apache Kafka's own classes encode them. */
public class EncodeMessages {
    static final String[] PACKAGES = {"common.message", "coordinator.group.generated", "coordinator.transaction.generated"};

    static Class<?> messageClass(String name) throws ClassNotFoundException {
        for (String p : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    return Class.forName("org.apache.kafka." + p + "." + name + suffix);
                } catch (ClassNotFoundException e) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        java.io.PrintStream out = new java.io.PrintStream(System.out, false, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode node = (ObjectNode) mapper.readTree(line);
            short version = (short) node.get("version").asInt();
            Class<?> type = messageClass(node.get("name").asText());
            try {
                Message message = (Message) Class.forName(type.getName() + "JsonConverter")
                    .getMethod("read", JsonNode.class, short.class).invoke(null, node.get("data"), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(buffer), cache, version);
                node.put("hex", HexFormat.of().formatHex(buffer.array()));
            } catch (java.lang.reflect.InvocationTargetException e) {
                node.put("error", String.valueOf(e.getCause()));
            }
            out.println(mapper.writeValueAsString(node));
        }
        out.flush();
    }
}

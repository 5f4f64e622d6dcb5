import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;

/** Prints the settings of Kafka's broker: name, type and default, between tabs. */
public class BrokerSettings {
    public static void main(String[] arguments) {
        for (Map.Entry<String, ConfigDef.ConfigKey> each : new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = each.getValue();
            Object value = key.hasDefault() ? key.defaultValue : null;
            System.out.println(key.name + "\t" + key.type + "\t" + ConfigDef.convertToString(value, key.type));
        }
    }
}

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A Java consumer in a group: SERVERS GROUP TOPIC [NAME=VALUE ...]. A topic that begins with "~" is a regular expression of
 * the broker's. Other settings of the consumer follow as NAME=VALUE. It writes the lines of tests.interop.member, and leaves
 * when it is terminated.
 */
public class ConsumerMember {
    private static List<Integer> assigned = null;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("auto.commit.interval.ms", "500");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        for (int i = 3; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        Thread reader = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                reader.join(60000);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            subscribe(consumer, arguments[2]);
            while (true) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                    tell("{\"partition\": " + each.partition() + ", \"value\": \"" + each.value() + "\"}");
                }
                tellAssigned(consumer.assignment());
            }
        } catch (WakeupException e) {
            consumer.close();
        } catch (RuntimeException e) {
            tell("{\"error\": \"" + e.toString().replace("\\", "").replace("\"", "'").replace("\n", " ") + "\"}");
            consumer.close();
        }
    }

    private static void subscribe(KafkaConsumer<String, String> consumer, String topic) {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                List<TopicPartition> left = new ArrayList<>(consumer.assignment());
                left.removeAll(partitions);
                tellAssigned(left);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tellAssigned(consumer.assignment());
            }
        };
        if (topic.startsWith("~")) {
            consumer.subscribe(new SubscriptionPattern(topic.substring(1)), listener);
        } else {
            consumer.subscribe(Collections.singletonList(topic), listener);
        }
    }

    private static void tellAssigned(Collection<TopicPartition> partitions) {
        List<Integer> now = new ArrayList<>();
        for (TopicPartition each : partitions) {
            now.add(each.partition());
        }
        Collections.sort(now);
        if (!now.equals(assigned)) {
            assigned = now;
            tell("{\"assigned\": " + now + "}");
        }
    }

    private static void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}

import java.lang.management.ManagementFactory;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.StandbyUpdateListener;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Java Kafka Streams in the benchmarks: SERVERS WORKLOAD SOURCE SINK APPLICATION RECORDS DIRECTORY [NAME=VALUE ...].
 *
 * W1 filter and map, W2 count per key, W3 count per key and minute, W6 restore of a table of RECORDS changelog records, W7 one
 * record in many is mapped, W8 and W9 filter and map, and filter and sum per key, over JSON ({@link PeerJson}); filter, map and aggregate over a format ({@link PeerFormats}). MARK lines as
 * those of ours.py; the CPU time is that of the whole JVM; START is the first record.
 * With RECORDS 0, and in W6, it runs until SIGTERM. All other workloads are operators, see {@link PeerOperators}.
 */
public class PeerStreams {
    private static final CountDownLatch DONE = new CountDownLatch(1);
    private static final ThreadLocal<MessageDigest> SHA256 = ThreadLocal.withInitial(() -> {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    });
    private static volatile long seen;
    private static long records;

    private static void mark(String name, long count) {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        System.out.printf("MARK %s %d %.6f%n", name, count, system.getProcessCpuTime() / 1e9);
        System.out.flush();
    }

    private static void count(byte[] key, byte[] value) {
        long now = seen + 1;
        seen = now;
        if (now == 1) {
            mark("START", 1);
        } else if (now == records / 2) {
            mark("HALF", now);
        } else if (now == records) {
            DONE.countDown();
        }
    }

    private static byte worked(byte[] value) {
        byte[] digest = value;
        for (int i = 0; i < 5; i++) {
            digest = SHA256.get().digest(digest);
        }
        return value[0];
    }

    private static byte[] upper(byte[] value) {
        byte[] result = new byte[value.length];
        for (int i = 0; i < value.length; i++) {
            byte each = value[i];
            result[i] = each >= 'a' && each <= 'z' ? (byte) (each - 32) : each;
        }
        return result;
    }

    private static Topology topology(String workload, String source, String sink) {
        StreamsBuilder builder = new StreamsBuilder();
        Serde<byte[]> raw = Serdes.ByteArray();
        KStream<byte[], byte[]> stream = builder.stream(source, Consumed.with(raw, raw)).peek(PeerStreams::count);
        switch (workload) {
            case "W1" -> stream.filter((key, value) -> (value[16] & 1) == 0)
                .mapValues(PeerStreams::upper)
                .to(sink, Produced.with(raw, raw));
            case "W2" -> stream.groupByKey(Grouped.with(raw, raw))
                .count(Materialized.as("counts"))
                .toStream()
                .to(sink, Produced.with(raw, Serdes.Long()));
            case "W3" -> stream.groupByKey(Grouped.with(raw, raw))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(30)))
                .count(Materialized.as("windows"))
                .toStream()
                .to(sink, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(byte[].class, 60_000), Serdes.Long()));
            case "W6" -> stream.groupByKey(Grouped.with(raw, raw))
                .reduce((before, now) -> now, Materialized.<byte[], byte[], KeyValueStore<Bytes, byte[]>>as("latest"));
            case "W7" -> stream.filter((key, value) -> worked(value) == 'M')
                .mapValues(PeerStreams::upper)
                .to(sink, Produced.with(raw, raw));
            case "W8", "W9" -> PeerJson.add(workload, stream, sink);
            default -> PeerFormats.add(workload, stream, sink);
        }
        return builder.build();
    }

    /** START is the beginning of the first restored partition, END the end of the last one of four. */
    private static class Restored implements StateRestoreListener {
        private final AtomicInteger begun = new AtomicInteger();
        private final AtomicInteger ended = new AtomicInteger();

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
            if (begun.incrementAndGet() == 1) {
                mark("START", 0);
            }
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) { }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {
            if (ended.incrementAndGet() == 4) {
                mark("END", records);
            }
        }
    }

    /** SEEN has the records that standby tasks have applied, at most once a second. */
    private static class Loaded implements StandbyUpdateListener {
        private long count;
        private long toldMs;

        @Override
        public void onUpdateStart(TopicPartition partition, String store, long start) { }

        @Override
        public void onBatchLoaded(TopicPartition partition, String store, TaskId task, long end, long records, long last) {
            count += records;
            if (System.currentTimeMillis() - toldMs >= 1000) {
                toldMs = System.currentTimeMillis();
                mark("SEEN", count);
            }
        }

        @Override
        public void onUpdateSuspended(TopicPartition partition, String store, long at, long end, SuspendReason reason) { }
    }

    public static void main(String[] arguments) throws Exception {
        String workload = arguments[1];
        records = Long.parseLong(arguments[5]);
        Properties settings = new Properties();
        settings.putAll(Map.of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            StreamsConfig.APPLICATION_ID_CONFIG, arguments[4],
            StreamsConfig.STATE_DIR_CONFIG, arguments[6],
            StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams",
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "1000",
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class.getName(),
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class.getName(),
            "auto.offset.reset", "earliest"
        ));
        for (int i = 7; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        if (!workload.matches("W\\d") && !PeerFormats.NAMES.contains(workload)) {
            PeerOperators.run(arguments, settings);
            return;
        }
        KafkaStreams streams = new KafkaStreams(topology(workload, arguments[2], arguments[3]), settings);
        if (workload.equals("W6")) {
            streams.setGlobalStateRestoreListener(new Restored());
            streams.setStandbyUpdateListener(new Loaded());
        }
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        DONE.await();
        streams.close();
        mark("END", seen);
    }
}

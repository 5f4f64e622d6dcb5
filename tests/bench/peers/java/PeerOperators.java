import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Windows, joins and a word count in Java Kafka Streams, as ours_operators.py has them; {@link PeerStreams} starts it.
 *
 * The topologies hold nothing that counts: the stream thread's own metric process-total tells how many records were processed,
 * those of internal topics among them. START has the CPU time just before the first record; SEEN comes about ten times a second;
 * QUIET is the end of waiting for records, before the client is closed; END is behind the last commit and the close.
 */
final class PeerOperators {
    private static final Duration GRACE = Duration.ofSeconds(1);
    private static final Duration RETENTION = Duration.ofSeconds(30);
    private static final long LOOK_MS = 10;
    private static final long REPORT_NS = 100_000_000;
    /** Longer than the commit interval, at which caches forward rows to the next subtopology. */
    private static final long QUIET_NS = 3_000_000_000L;

    private final Serde<byte[]> bytes = Serdes.ByteArray();
    private final StreamsBuilder builder = new StreamsBuilder();
    private final String[] topics;
    private final String sink;

    private PeerOperators(String sources, String sink) {
        this.topics = sources.split(",");
        this.sink = sink;
    }

    // ------------------------------------------------------------------------------------------------- the topologies

    private Topology build(String operator) {
        switch (operator) {
            case "words" -> countWords();
            case "stream-stream" -> write(stream(0).join(
                stream(1),
                PeerOperators::heads,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(200), GRACE),
                StreamJoined.with(bytes, bytes, bytes)));
            case "stream-table" -> write(stream(0).join(table(1, "table"), PeerOperators::heads, Joined.with(bytes, bytes, bytes)));
            case "global" -> write(stream(0).join(global(1), (key, value) -> userOf(value), PeerOperators::heads));
            case "versioned" -> write(
                stream(0).join(versions(1), PeerOperators::heads, Joined.with(bytes, bytes, bytes)));
            case "grace" -> write(
                stream(0).join(
                    versions(1), PeerOperators::heads, Joined.with(bytes, bytes, bytes).withGracePeriod(GRACE)));
            case "processor" -> countInProcessor();
            case "table-table" -> write(table(0, "of-0").join(table(1, "of-1"), PeerOperators::heads).toStream());
            case "foreign-key" -> write(
                table(0, "of-0").join(table(1, "of-1"), PeerOperators::userOf, PeerOperators::heads).toStream());
            case "session" -> write(
                grouped().windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(2), GRACE)).count(named()),
                WindowedSerdes.sessionWindowedSerdeFrom(byte[].class));
            case "sliding" -> write(
                grouped().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(2), GRACE)).count(named()),
                WindowedSerdes.timeWindowedSerdeFrom(byte[].class, 2_000));
            case "hopping" -> write(
                grouped()
                    .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), GRACE).advanceBy(Duration.ofSeconds(15)))
                    .count(named()),
                WindowedSerdes.timeWindowedSerdeFrom(byte[].class, 60_000));
            case "suppress" -> write(
                grouped()
                    .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(5)))
                    .count(named())
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())),
                WindowedSerdes.timeWindowedSerdeFrom(byte[].class, 5_000));
            default -> throw new IllegalArgumentException("no such operator: " + operator);
        }
        return builder.build();
    }

    private void countWords() {
        Serde<String> text = Serdes.String();
        builder.stream(topics[0], Consumed.with(bytes, text))
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((number, word) -> word, Grouped.with(text, text))
            .count(named())
            .toStream()
            .to(sink, Produced.with(text, Serdes.Long()));
    }

    private KStream<byte[], byte[]> stream(int index) {
        return builder.stream(topics[index], Consumed.with(bytes, bytes));
    }

    private KTable<byte[], byte[]> table(int index, String store) {
        Materialized<byte[], byte[], KeyValueStore<Bytes, byte[]>> rows = Materialized.as(store);
        return builder.table(topics[index], Consumed.with(bytes, bytes), rows.withKeySerde(bytes).withValueSerde(bytes));
    }

    private GlobalKTable<byte[], byte[]> global(int index) {
        Materialized<byte[], byte[], KeyValueStore<Bytes, byte[]>> rows = Materialized.as("table");
        return builder.globalTable(
            topics[index], Consumed.with(bytes, bytes), rows.withKeySerde(bytes).withValueSerde(bytes));
    }

    private KTable<byte[], byte[]> versions(int index) {
        Materialized<byte[], byte[], KeyValueStore<Bytes, byte[]>> rows =
            Materialized.as(Stores.persistentVersionedKeyValueStore("versions", RETENTION));
        return builder.table(topics[index], Consumed.with(bytes, bytes), rows.withKeySerde(bytes).withValueSerde(bytes));
    }

    private void countInProcessor() {
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), bytes, Serdes.Long()));
        stream(0).process(Counts::new, "counts").to(sink, Produced.with(bytes, Serdes.Long()));
    }

    /** Forwards how many records of its key there were so far. */
    private static final class Counts implements Processor<byte[], byte[], byte[], Long> {
        private ProcessorContext<byte[], Long> context;
        private KeyValueStore<byte[], Long> counts;

        @Override
        public void init(ProcessorContext<byte[], Long> context) {
            this.context = context;
            this.counts = context.getStateStore("counts");
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            Long before = counts.get(record.key());
            long count = before == null ? 1 : before + 1;
            counts.put(record.key(), count);
            context.forward(record.withValue(count));
        }
    }

    private KGroupedStream<byte[], byte[]> grouped() {
        return stream(0).groupByKey(Grouped.with(bytes, bytes));
    }

    private static <K, S extends StateStore> Materialized<K, Long, S> named() {
        return Materialized.as("counts");
    }

    private void write(KStream<byte[], byte[]> results) {
        results.to(sink, Produced.with(bytes, bytes));
    }

    private void write(KTable<Windowed<byte[]>, Long> counts, Serde<Windowed<byte[]>> keys) {
        counts.toStream().to(sink, Produced.with(keys, Serdes.Long()));
    }

    /** The first twenty bytes of both values, with a bar between them. */
    private static byte[] heads(byte[] one, byte[] other) {
        int length = Math.min(20, one.length);
        int otherLength = Math.min(20, other.length);
        byte[] both = Arrays.copyOf(one, length + 1 + otherLength);
        both[length] = '|';
        System.arraycopy(other, 0, both, length + 1, otherLength);
        return both;
    }

    /** There are 10,000 users, so the last four digits of the amount name one. */
    private static byte[] userOf(byte[] value) {
        byte[] user = {'u', 's', 'e', 'r', '-', '0', '0', '0', 0, 0, 0, 0};
        System.arraycopy(value, 52, user, 8, 4);
        return user;
    }

    // ----------------------------------------------------------------------------------------------------- the program

    /** ``records``: what must be processed at least; of a foreign-key join nobody knows how much more comes. */
    static void run(String[] arguments, Properties settings) throws InterruptedException {
        String operator = arguments[1];
        long records = Long.parseLong(arguments[5]);
        Topology topology = new PeerOperators(arguments[2], arguments[3]).build(operator);
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Metric processed = streams.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals("process-total"))
            .filter(metric -> metric.metricName().group().equals("stream-thread-metrics"))
            .findAny()
            .orElseThrow();
        streams.start();
        awaitFirst(processed);
        long seen = awaitAll(processed, records, operator.equals("foreign-key") ? QUIET_NS : 0);
        mark("QUIET", seen, cpuNs());
        streams.close();
        mark("END", seen, cpuNs());
    }

    private static void awaitFirst(Metric processed) throws InterruptedException {
        long beforeNs = cpuNs();
        while (count(processed) == 0) {
            beforeNs = cpuNs();
            Thread.sleep(LOOK_MS);
        }
        mark("START", 0, beforeNs);
    }

    /** Until there were so many, and no more came for ``quietNs``. */
    private static long awaitAll(Metric processed, long records, long quietNs) throws InterruptedException {
        long seen = 0;
        long changedNs = System.nanoTime();
        long reportedNs = changedNs - REPORT_NS;
        while (true) {
            long count = count(processed);
            long nowNs = System.nanoTime();
            boolean changed = count != seen;
            if (changed) {
                seen = count;
                changedNs = nowNs;
                if (nowNs - reportedNs >= REPORT_NS || seen >= records) {
                    mark("SEEN", seen, cpuNs());
                    reportedNs = nowNs;
                }
            }
            if (seen >= records && nowNs - changedNs >= quietNs) {
                return seen;
            }
            Thread.sleep(LOOK_MS);
        }
    }

    private static long count(Metric processed) {
        return ((Number) processed.metricValue()).longValue();
    }

    private static long cpuNs() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }

    private static void mark(String name, long records, long cpuNs) {
        System.out.printf("MARK %s %d %.6f%n", name, records, cpuNs / 1e9);
        System.out.flush();
    }
}

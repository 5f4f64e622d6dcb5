// Writes record batches with Apache Kafka's own classes, one JSON object a line: the bytes and what Kafka reads back.
// Run: java -cp <class path of org.apache.kafka:kafka-clients:4.3.1> WriteBatches.java > java.jsonl

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;

public class WriteBatches {
    static byte[] text(String s) {
        return s == null ? null : s.getBytes(StandardCharsets.UTF_8);
    }

    static SimpleRecord record(long timestamp, String key, String value, Header... headers) {
        return new SimpleRecord(timestamp, text(key), text(value), headers);
    }

    static SimpleRecord[] many(int count, boolean headers) {
        SimpleRecord[] records = new SimpleRecord[count];
        for (int i = 0; i < count; i++) {
            Header[] h = headers && i % 3 == 1
                ? new Header[] {new RecordHeader("trace", text("t" + i)), new RecordHeader("größe", null)} : new Header[0];
            records[i] = record(1_700_000_000_000L + i * 37L - (i % 5 == 4 ? 100 : 0), "user-" + i % 7, "value number " + i + " ".repeat(i % 90), h);
        }
        return records;
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return "\"" + HexFormat.of().formatHex(bytes) + "\"";
    }

    static String quoted(String s) {
        return "\"" + s + "\"";
    }

    static void show(String name, MemoryRecords memory) {
        for (MutableRecordBatch batch : memory.batches()) {
            batch.ensureValid();
            ByteBuffer bytes = ByteBuffer.allocate(batch.sizeInBytes());
            ((DefaultRecordBatch) batch).writeTo(bytes);
            bytes.flip();
            List<String> rows = new ArrayList<>();
            for (Record r : batch) {
                List<String> headers = new ArrayList<>();
                for (Header h : r.headers())
                    headers.add("[" + quoted(h.key()) + "," + hex(h.value() == null ? null : ByteBuffer.wrap(h.value())) + "]");
                rows.add("{\"offset\":" + r.offset() + ",\"timestamp\":" + r.timestamp() + ",\"key\":" + hex(r.key())
                    + ",\"value\":" + hex(r.value()) + ",\"headers\":[" + String.join(",", headers) + "]}");
            }
            System.out.println("{\"name\":" + quoted(name) + ",\"base_offset\":" + batch.baseOffset()
                + ",\"last_offset\":" + batch.lastOffset() + ",\"next_offset\":" + batch.nextOffset()
                + ",\"size_bytes\":" + batch.sizeInBytes() + ",\"compression\":" + quoted(batch.compressionType().name)
                + ",\"log_append_time\":" + (batch.timestampType() == TimestampType.LOG_APPEND_TIME)
                + ",\"transactional\":" + batch.isTransactional() + ",\"control\":" + batch.isControlBatch()
                + ",\"max_timestamp\":" + batch.maxTimestamp() + ",\"producer_id\":" + batch.producerId()
                + ",\"producer_epoch\":" + batch.producerEpoch() + ",\"base_sequence\":" + batch.baseSequence()
                + ",\"last_sequence\":" + batch.lastSequence() + ",\"leader_epoch\":" + batch.partitionLeaderEpoch()
                + ",\"records\":[" + String.join(",", rows) + "],\"hex\":" + hex(bytes) + "}");
        }
    }

    static MemoryRecords compacted(MemoryRecords source, int every, MemoryRecords.RecordFilter.BatchRetention retention) {
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        source.filterTo(new MemoryRecords.RecordFilter(1_800_000_000_000L, 86_400_000L) {
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(retention, false);
            }
            protected boolean shouldRetainRecord(RecordBatch batch, Record r) {
                return every > 0 && r.offset() % every == 2;
            }
        }, out, BufferSupplier.NO_CACHING);
        out.flip();
        return MemoryRecords.readableRecords(out);
    }

    public static void main(String[] args) {
        show("one", MemoryRecords.withRecords(Compression.NONE, record(1_700_000_000_123L, "k", "v")));
        show("nulls", MemoryRecords.withRecords(5L, Compression.NONE, 3, record(7, null, "v"), record(8, "k", null), record(9, null, null), record(9, "", "")));
        show("no timestamps", MemoryRecords.withRecords(Compression.NONE, record(-1, "a", "b"), record(-1, "c", "d")));
        show("one timestamp missing", MemoryRecords.withRecords(Compression.NONE, record(1_700_000_000_000L, "a", "b"), record(-1, "c", "d"), record(1_700_000_000_001L, "e", "f")));
        show("timestamps fall", MemoryRecords.withRecords(Compression.NONE, record(9_000_000_000_000L, "a", "b"), record(0, "c", "d"), record(4_000_000_000_000L, "e", "f")));
        show("headers", MemoryRecords.withRecords(Compression.NONE, many(10, true)));
        for (Compression c : new Compression[] {Compression.NONE, Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build(), Compression.zstd().build()}) {
            show(c.type().name + " plain", MemoryRecords.withRecords(100L, c, 1, many(32, false)));
            show(c.type().name + " headers", MemoryRecords.withRecords(100L, c, 1, many(32, true)));
        }
        show("big varints", MemoryRecords.withRecords(1L << 40, Compression.NONE, 0, record(1, "k".repeat(300), "v".repeat(17_000)), record(Integer.MAX_VALUE * 100L, "k", "v".repeat(130))));
        show("log append time", MemoryRecords.withRecords((byte) 2, 40L, Compression.NONE, TimestampType.LOG_APPEND_TIME, many(3, false)));
        show("log append time zstd", MemoryRecords.withRecords((byte) 2, 40L, Compression.zstd().build(), TimestampType.LOG_APPEND_TIME, many(3, false)));
        show("idempotent", MemoryRecords.withIdempotentRecords(Compression.NONE, 4711L, (short) 3, 12, many(4, false)));
        show("idempotent, sequence wraps", MemoryRecords.withIdempotentRecords(Compression.NONE, 4711L, (short) 3, Integer.MAX_VALUE - 1, many(4, false)));
        show("transactional", MemoryRecords.withTransactionalRecords(Compression.lz4().build(), 4711L, (short) 3, 12, many(4, false)));
        show("commit", MemoryRecords.withEndTransactionMarker(77L, 1_700_000_000_999L, 5, 4711L, (short) 3, new EndTransactionMarker(ControlRecordType.COMMIT, 9)));
        show("abort", MemoryRecords.withEndTransactionMarker(78L, 1_700_000_000_999L, 5, 4711L, (short) 3, new EndTransactionMarker(ControlRecordType.ABORT, 10)));
        MemoryRecords source = MemoryRecords.withIdempotentRecords(200L, Compression.NONE, 4711L, (short) 3, 0, 1, many(30, true));
        show("compacted", compacted(source, 5, MemoryRecords.RecordFilter.BatchRetention.DELETE_EMPTY));
        show("compacted to nothing", compacted(source, 0, MemoryRecords.RecordFilter.BatchRetention.RETAIN_EMPTY));
        MemoryRecords tombstones = MemoryRecords.withRecords(200L, Compression.NONE, 1, record(1_700_000_000_000L, "a", null), record(1_700_000_000_001L, "b", null), record(1_700_000_000_002L, "c", null));
        show("compacted, with a delete horizon", compacted(tombstones, 200, MemoryRecords.RecordFilter.BatchRetention.DELETE_EMPTY));
    }
}

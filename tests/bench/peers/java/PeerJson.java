import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** W8 and W9: orders in JSON as records of Java, read and written by Jackson. */
class PeerJson {
    record Address(String city, int zip) { }

    record Item(String sku, int count) { }

    record Order(long id, String customer, long cents, String currency, Address address, List<Item> items, String note) { }

    record Mapped(long id, @com.fasterxml.jackson.annotation.JsonProperty("double") long twice, String city) { }

    record Sum(long cents, long orders) { }

    private static final ObjectMapper MAPPER =
        new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);

    private static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = MAPPER.readerFor(type);
        ObjectWriter writer = MAPPER.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return value == null ? null : writer.writeValueAsBytes(value);
                } catch (JsonProcessingException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, bytes) -> {
                try {
                    return bytes == null ? null : reader.readValue(bytes);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
        );
    }

    /** The stream is read as bytes, so that its records are counted; they are parsed as a serde would. */
    static void add(String workload, KStream<byte[], byte[]> stream, String sink) {
        Serde<Order> orders = json(Order.class);
        KStream<byte[], Order> large = stream.mapValues(bytes -> orders.deserializer().deserialize("", bytes))
            .filter((key, order) -> order.cents() >= 50_000);
        Serde<byte[]> raw = Serdes.ByteArray();
        if (workload.equals("W8")) {
            large.mapValues(order -> new Mapped(order.id(), order.cents() * 2, order.address().city()))
                .to(sink, Produced.with(raw, json(Mapped.class)));
            return;
        }
        Serde<Sum> sums = json(Sum.class);
        large.groupByKey(Grouped.with(raw, orders))
            .aggregate(
                () -> new Sum(0, 0),
                (key, order, sum) -> new Sum(sum.cents() + order.cents(), sum.orders() + 1),
                Materialized.<byte[], Sum, KeyValueStore<Bytes, byte[]>>as("sums").withKeySerde(raw).withValueSerde(sums)
            )
            .toStream()
            .to(sink, Produced.with(raw, sums));
    }
}

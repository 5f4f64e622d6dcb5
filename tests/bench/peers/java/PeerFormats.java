import bench.avro.Total;
import bench.proto.Orders;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.avro.Schema;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.specific.SpecificDatumReader;
import org.apache.avro.specific.SpecificDatumWriter;
import org.apache.avro.specific.SpecificRecord;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Filter, map and aggregate over orders in a format: JSON by Jackson into records, specific records of Avro, generated
 * messages of Protobuf (both with ids of a schema registry before them, as Confluent's serdes write them), text, numbers.
 */
class PeerFormats {
    static final Set<String> NAMES =
        Set.of("json", "pydantic", "dataclass", "typeddict", "avro", "avro-used", "protobuf", "string", "number");
    private static final long LEAST_CENTS = 50_000;

    record Line(long cents, String city) { }

    record JsonTotal(long cents, long orders, String city) { }

    private static final ObjectMapper MAPPER =
        new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);

    /** What serdes do that throws. */
    interface Call<A, B> {
        B on(A value) throws IOException;
    }

    private static <T> Serde<T> serde(Call<T, byte[]> write, Call<byte[], T> read) {
        return Serdes.serdeFrom((topic, value) -> checked(write, value), (topic, bytes) -> checked(read, bytes));
    }

    private static <A, B> B checked(Call<A, B> call, A value) {
        try {
            return value == null ? null : call.on(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = MAPPER.readerFor(type);
        ObjectWriter writer = MAPPER.writerFor(type);
        return serde(writer::writeValueAsBytes, reader::readValue);
    }

    /** Asks a schema registry, for each schema once. */
    private static class Registry {
        private final String url = System.getenv("REGISTRY");
        private final HttpClient client = HttpClient.newHttpClient();
        private final Map<Integer, String> schemas = new ConcurrentHashMap<>();

        private JsonNode ask(HttpRequest.Builder request) {
            try {
                HttpResponse<String> answer = client.send(
                    request.header("Content-Type", "application/vnd.schemaregistry.v1+json").build(),
                    HttpResponse.BodyHandlers.ofString()
                );
                return MAPPER.readTree(answer.body());
            } catch (IOException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        int idOf(String subject, String schema, String kind) {
            String body = MAPPER.createObjectNode().put("schema", schema).put("schemaType", kind).toString();
            return ask(
                HttpRequest.newBuilder(URI.create(url + "/subjects/" + subject + "/versions"))
                    .POST(HttpRequest.BodyPublishers.ofString(body))
            ).get("id").asInt();
        }

        String schema(int id) {
            return schemas.computeIfAbsent(
                id,
                each -> ask(HttpRequest.newBuilder(URI.create(url + "/schemas/ids/" + each))).get("schema").asText()
            );
        }
    }

    private static int idOf(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        if (buffer.get() != 0) {
            throw new IllegalArgumentException("no schema id");
        }
        return buffer.getInt();
    }

    private static <T extends SpecificRecord> Serde<T> avro(Registry registry, String subject, Schema own) {
        Map<Integer, SpecificDatumReader<T>> readers = new ConcurrentHashMap<>();
        SpecificDatumWriter<T> writer = new SpecificDatumWriter<>(own);
        int[] id = new int[1];
        BinaryEncoder[] encoder = new BinaryEncoder[1];
        BinaryDecoder[] decoder = new BinaryDecoder[1];
        return serde(
            value -> {
                if (id[0] == 0) {
                    id[0] = registry.idOf(subject, own.toString(), "AVRO");
                }
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                out.write(0);
                out.write(ByteBuffer.allocate(4).putInt(id[0]).array());
                encoder[0] = EncoderFactory.get().directBinaryEncoder(out, encoder[0]);
                writer.write(value, encoder[0]);
                encoder[0].flush();
                return out.toByteArray();
            },
            bytes -> {
                SpecificDatumReader<T> reader = readers.computeIfAbsent(
                    idOf(bytes),
                    each -> new SpecificDatumReader<>(new Schema.Parser().parse(registry.schema(each)), own)
                );
                decoder[0] = DecoderFactory.get().binaryDecoder(bytes, 5, bytes.length - 5, decoder[0]);
                return reader.read(null, decoder[0]);
            }
        );
    }

    /** {@code indexes}: where the message type stands in its file, as bytes. */
    private static <T extends MessageLite> Serde<T> protobuf(
        Registry registry, String subject, Parser<T> parser, byte[] indexes
    ) {
        int[] id = new int[1];
        int head = 5 + indexes.length;
        return serde(
            value -> {
                if (id[0] == 0) {
                    id[0] = registry.idOf(subject, System.getenv("PROTOBUF"), "PROTOBUF");
                }
                byte[] bytes = new byte[head + value.getSerializedSize()];
                ByteBuffer.wrap(bytes).put((byte) 0).putInt(id[0]).put(indexes);
                CodedOutputStream out = CodedOutputStream.newInstance(bytes, head, bytes.length - head);
                value.writeTo(out);
                return bytes;
            },
            bytes -> {
                idOf(bytes);
                return parser.parseFrom(bytes, head, bytes.length - head);
            }
        );
    }

    private static <O, L, T> void aggregated(
        KStream<byte[], byte[]> stream,
        String sink,
        Serde<O> orders,
        Serde<T> totals,
        Predicate<byte[], O> isLarge,
        ValueMapper<O, L> mapped,
        Initializer<T> empty,
        Aggregator<byte[], L, T> summed
    ) {
        Serde<byte[]> raw = Serdes.ByteArray();
        // The stream is read as bytes, so that its records are counted; they are parsed as a serde would.
        Deserializer<O> parsed = orders.deserializer();
        stream.mapValues(bytes -> parsed.deserialize("", bytes))
            .filter(isLarge)
            .mapValues(mapped)
            .groupByKey(Grouped.keySerde(raw))
            .aggregate(
                empty,
                summed,
                Materialized.<byte[], T, KeyValueStore<Bytes, byte[]>>as("totals").withKeySerde(raw).withValueSerde(totals)
            )
            .toStream()
            .to(sink, Produced.with(raw, totals));
    }

    static void add(String format, KStream<byte[], byte[]> stream, String sink) {
        switch (format) {
            case "avro" -> addAvro(stream, sink);
            case "avro-used" -> addAvroUsed(stream, sink);
            case "protobuf" -> addProtobuf(stream, sink);
            case "string" -> PeerFormats.<String, Line, String>aggregated(
                stream, sink, Serdes.String(), Serdes.String(),
                (key, text) -> Long.parseLong(text.split(",", 4)[2]) >= LEAST_CENTS,
                text -> {
                    String[] fields = text.split(",");
                    return new Line(Long.parseLong(fields[2]) * 2, fields[4]);
                },
                () -> "0,0,",
                (key, line, total) -> {
                    String[] fields = total.split(",");
                    return (Long.parseLong(fields[0]) + line.cents()) + "," + (Long.parseLong(fields[1]) + 1) + "," + line.city();
                }
            );
            case "number" -> PeerFormats.<Double, Long, Long>aggregated(
                stream, sink, Serdes.Double(), Serdes.Long(),
                (key, cents) -> cents >= LEAST_CENTS,
                cents -> cents.longValue() * 2,
                () -> 0L,
                (key, cents, total) -> total + cents
            );
            // Records of Java are what types are in Python.
            default -> PeerFormats.<PeerJson.Order, Line, JsonTotal>aggregated(
                stream, sink, json(PeerJson.Order.class), json(JsonTotal.class),
                (key, order) -> order.cents() >= LEAST_CENTS,
                order -> new Line(order.cents() * 2, order.address().city()),
                () -> new JsonTotal(0, 0, ""),
                (key, line, total) -> new JsonTotal(total.cents() + line.cents(), total.orders() + 1, line.city())
            );
        }
    }

    private static void addAvro(KStream<byte[], byte[]> stream, String sink) {
        Registry registry = new Registry();
        PeerFormats.<bench.avro.Order, Line, Total>aggregated(
            stream, sink,
            avro(registry, "orders-value", bench.avro.Order.getClassSchema()),
            avro(registry, "totals-value", Total.getClassSchema()),
            (key, order) -> order.getCents() >= LEAST_CENTS,
            order -> new Line(order.getCents() * 2, order.getAddress().getCity().toString()),
            () -> new Total(0L, 0L, ""),
            (key, line, total) -> new Total(total.getCents() + line.cents(), total.getOrders() + 1, line.city())
        );
    }

    private static void addAvroUsed(KStream<byte[], byte[]> stream, String sink) {
        Registry registry = new Registry();
        PeerFormats.<bench.used.Order, Line, Total>aggregated(
            stream, sink,
            avro(registry, "orders-value", bench.used.Order.getClassSchema()),
            avro(registry, "totals-value", Total.getClassSchema()),
            (key, order) -> order.getCents() >= LEAST_CENTS,
            order -> new Line(order.getCents() * 2, order.getAddress().getCity().toString()),
            () -> new Total(0L, 0L, ""),
            (key, line, total) -> new Total(total.getCents() + line.cents(), total.getOrders() + 1, line.city())
        );
    }

    private static void addProtobuf(KStream<byte[], byte[]> stream, String sink) {
        Registry registry = new Registry();
        PeerFormats.<Orders.Order, Line, Orders.Total>aggregated(
            stream, sink,
            protobuf(registry, "orders-value", Orders.Order.parser(), new byte[] {0}),
            protobuf(registry, "totals-value", Orders.Total.parser(), new byte[] {2, 6}),
            (key, order) -> order.getCents() >= LEAST_CENTS,
            order -> new Line(order.getCents() * 2, order.getAddress().getCity()),
            Orders.Total::getDefaultInstance,
            (key, line, total) -> Orders.Total.newBuilder()
                .setCents(total.getCents() + line.cents())
                .setOrders(total.getOrders() + 1)
                .setCity(line.city())
                .build()
        );
    }
}

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TableJoined;

/**
 * An instance of Kafka Streams that joins books with their authors by foreign key: SERVERS APPLICATION INPUT OUTPUT
 * [NAME=VALUE ...]. The authors are in the topic INPUT-authors. It writes what StreamsMember writes.
 */
public class StreamsJoin {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        for (int i = 4; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Serde<String> text = Serdes.String();
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, text.getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, text.getClass());
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> books =
            builder.table(arguments[2], Consumed.with(text, text), Materialized.as("books"));
        KTable<String, String> authors =
            builder.table(arguments[2] + "-authors", Consumed.with(text, text), Materialized.as("authors"));
        books.leftJoin(
                authors,
                book -> book.split("/")[0],
                (book, author) -> book + " by " + author,
                TableJoined.as("shelf"),
                Materialized.as("shelved"))
            .toStream()
            .to(arguments[3], Produced.with(text, text));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> tell("state", now.toString()));
        streams.setUncaughtExceptionHandler(error -> {
            tell("error", error.toString());
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
        streams.start();
        Thread.currentThread().join();
    }

    private static void tell(String name, String text) {
        String plain = text.replace("\\", "").replace("\"", "'").replace("\n", " ");
        System.out.println("{\"" + name + "\": \"" + plain + "\"}");
        System.out.flush();
    }
}

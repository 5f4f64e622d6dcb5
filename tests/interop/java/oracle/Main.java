package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Answers each case that it reads, one a line, with a line: what Kafka Streams builds of it and does with its input. */
public final class Main {
    public static void main(String[] args) throws Exception {
        final PrintStream answers = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        final BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = cases.readLine()) != null; ) {
            final JsonNode asked = Json.M.readTree(line);
            ObjectNode answer;
            try {
                answer = new Runner().run(asked);
            } catch (Throwable problem) {
                answer = Json.M.createObjectNode();
                answer.set("not_run", Runner.err(problem));
            }
            answers.println(Json.M.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }
}

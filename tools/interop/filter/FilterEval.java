import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.SqlFilter;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * The real evaluator of SQL92 filters behind a pipe. A line is a command, a tab, and fields in hex of UTF-8 (properties: of the
 * bytes that a record holds):
 *   eval SQL PROPERTIES   answers TRUE, FALSE, NULL, FAILED (the evaluation raises) or ILLEGAL (the parser raises)
 *   bloom F N TEXT        answers k, m and the bit positions
 *   bench SECONDS SQL PROPERTIES...   answers how many messages a second one thread decodes and evaluates, as a broker does
 */
final class FilterEval {
    private static final class Message implements EvaluationContext {
        private final Map<String, String> properties;

        Message(Map<String, String> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new java.util.HashMap<>(properties);
        }
    }

    private static byte[] bytes(String hex) {
        byte[] found = new byte[hex.length() / 2];
        for (int i = 0; i < found.length; i++) {
            found[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return found;
    }

    private static String text(String hex) {
        return new String(bytes(hex), StandardCharsets.UTF_8);
    }

    private static Message message(String hex) {
        return new Message(MessageDecoder.string2messageProperties(text(hex)));
    }

    private static String eval(String sql, String properties) {
        Expression expression;
        try {
            expression = new SqlFilter().compile(sql);
        } catch (Throwable e) {
            return "ILLEGAL";
        }
        try {
            Object found = expression.evaluate(message(properties));
            return found == null ? "NULL" : found.toString().toUpperCase();
        } catch (Throwable e) {
            return "FAILED";
        }
    }

    private static String bloom(int f, int n, String text) {
        BloomFilter filter = BloomFilter.createByFn(f, n);
        StringBuilder found = new StringBuilder(filter.getK() + " " + filter.getM());
        for (int position : filter.calcBitPositions(text)) {
            found.append(' ').append(position);
        }
        return found.toString();
    }

    private static String bench(double seconds, String sql, String[] fields) throws Exception {
        Expression expression = new SqlFilter().compile(sql);
        List<byte[]> messages = new ArrayList<>();
        for (int i = 3; i < fields.length; i++) {
            messages.add(bytes(fields[i]));
        }
        long matched = 0;
        double best = 0;
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            long begun = System.nanoTime();
            long count = 0;
            for (int round = 0; round < 20; round++) {
                for (byte[] raw : messages) {
                    Message message = new Message(
                        MessageDecoder.string2messageProperties(new String(raw, StandardCharsets.UTF_8)));
                    try {
                        if (Boolean.TRUE.equals(expression.evaluate(message))) {
                            matched++;
                        }
                    } catch (RuntimeException e) {
                        // a broker takes such a message for unmatched
                    }
                    count++;
                }
            }
            best = Math.max(best, count * 1e9 / (System.nanoTime() - begun));
        }
        return Math.round(best) + " " + (matched > 0);
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            if (fields[0].equals("eval")) {
                out.println(eval(text(fields[1]), fields[2]));
            } else if (fields[0].equals("bloom")) {
                out.println(bloom(Integer.parseInt(fields[1]), Integer.parseInt(fields[2]), text(fields[3])));
            } else {
                out.println(bench(Double.parseDouble(fields[1]), text(fields[2]), fields));
            }
        }
    }
}

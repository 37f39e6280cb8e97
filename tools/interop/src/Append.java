import java.io.PrintWriter;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.*; // the versions keep their message classes in different packages
import org.apache.rocketmq.store.*;

/**
 * Puts a seeded mixture of messages through the real store: single ones with and without properties, batches, transaction
 * flags. One JSON line per message says what was given and where the store says that it lies.
 */
final class Append {
    private final DefaultMessageStore s;
    private final Random random;
    private final PrintWriter out;
    private final InetSocketAddress born;
    private final InetSocketAddress host;

    private Append(DefaultMessageStore s, long seed, PrintWriter out) throws Exception {
        this.s = s;
        this.random = new Random(seed);
        this.out = out;
        born = new InetSocketAddress(InetAddress.getByAddress(new byte[] {(byte) 192, 0, 2, 20}), 45678);
        host = new InetSocketAddress(InetAddress.getByAddress(new byte[] {(byte) 192, 0, 2, 10}), 10911);
    }

    /** Puts `count` messages; throws if one of them is refused. */
    static void run(DefaultMessageStore s, int count, long seed, PrintWriter out) throws Exception {
        Append a = new Append(s, seed, out);
        for (int i = 0; i < count;) {
            i += i % 9 == 8 && count - i >= 3 ? a.batch(i, 3) : a.single(i);
        }
        out.flush();
    }

    private Map<String, String> properties(int i) {
        Map<String, String> p = new LinkedHashMap<>();
        if (i % 5 != 4) {
            p.put("TAGS", "Tag" + i % 3);
            p.put("KEYS", "java-" + i + (i % 2 == 0 ? " shared" : ""));
            p.put("UNIQ_KEY", String.format("C0000214%08X4EF3B4AAC2%06X", random.nextInt(), i));
            p.put("number", "" + i);
        }
        return p;
    }

    private byte[] body() {
        byte[] b = new byte[random.nextInt(400)];
        random.nextBytes(b);
        return b;
    }

    private void report(int i, String topic, int queue, byte[] body, Map<String, String> p, String id, long logics) {
        out.println(new Json().put("i", i).put("topic", topic).put("queueId", queue).put("body", Json.hex(body))
            .put("props", p).put("msgId", id).put("queueOffset", logics));
    }

    private static void check(PutMessageResult r, int i) {
        if (!r.isOk()) {
            throw new IllegalStateException("message " + i + ": " + r.getPutMessageStatus());
        }
    }

    private int single(int i) {
        Map<String, String> p = properties(i);
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        m.setTopic(i % 4 == 0 ? "JavaOnly" : "Shared");
        m.setQueueId(i % 3);
        m.setBody(body());
        m.setFlag(i);
        m.setSysFlag(i % 11 == 10 ? 8 : 0); // a committed transaction message: in its queue like any other
        m.setReconsumeTimes(i % 3);
        m.setBornTimestamp(1700000000000L + i);
        m.setBornHost(born);
        m.setStoreHost(host);
        MessageAccessor.setProperties(m, p);
        m.setPropertiesString(MessageDecoder.messageProperties2String(p));
        PutMessageResult r = s.putMessage(m);
        check(r, i);
        report(i, m.getTopic(), m.getQueueId(), m.getBody(), p, r.getAppendMessageResult().getMsgId(),
            r.getAppendMessageResult().getLogicsOffset());
        return 1;
    }

    private int batch(int first, int n) throws Exception {
        List<Message> parts = new ArrayList<>();
        for (int i = first; i < first + n; i++) {
            Message m = new Message();
            m.setTopic("Shared");
            m.setBody(body());
            m.setFlag(i);
            MessageAccessor.setProperties(m, properties(i));
            parts.add(m);
        }
        MessageExtBatch b = new MessageExtBatch();
        b.setTopic("Shared");
        b.setQueueId(1);
        b.setBody(MessageDecoder.encodeMessages(parts));
        b.setBornTimestamp(1700000000000L + first);
        b.setBornHost(born);
        b.setStoreHost(host);
        PutMessageResult r = s.putMessages(b);
        check(r, first);
        String[] ids = r.getAppendMessageResult().getMsgId().split(",");
        for (int i = 0; i < n; i++) {
            report(first + i, "Shared", 1, parts.get(i).getBody(), parts.get(i).getProperties(), ids[i],
                r.getAppendMessageResult().getLogicsOffset() + i);
        }
        return n;
    }
}

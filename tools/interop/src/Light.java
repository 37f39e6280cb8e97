import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.*; // the versions keep their message classes in different packages
import org.apache.rocketmq.store.*;

/** Light queues (multi-dispatch) of the real store: puts messages that list them, and reads them by its public interface. */
final class Light {
    private Light() {
    }

    /** Puts `count` messages; message i is in the light queues of lists[i % lists.length]. */
    static void put(DefaultMessageStore s, String topic, int count, String[] lists) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);
        for (int i = 0; i < count; i++) {
            Map<String, String> p = new LinkedHashMap<>();
            p.put("INNER_MULTI_DISPATCH", lists[i % lists.length]);
            p.put("TAGS", "java");
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic(topic);
            m.setQueueId(i % 2);
            m.setBody(("java-" + i).getBytes("UTF-8"));
            m.setBornTimestamp(1700000000000L + i);
            m.setBornHost(host);
            m.setStoreHost(host);
            MessageAccessor.setProperties(m, p);
            m.setPropertiesString(MessageDecoder.messageProperties2String(p));
            PutMessageResult r = s.putMessage(m);
            if (!r.isOk()) {
                throw new IllegalStateException("message " + i + ": " + r.getPutMessageStatus());
            }
        }
    }

    /** Bodies of a queue from its begin on, with the property INNER_MULTI_QUEUE_OFFSET behind each. */
    static String get(DefaultMessageStore s, String topic) throws Exception {
        StringBuilder all = new StringBuilder();
        long at = 0;
        while (true) {
            GetMessageResult r = s.getMessage("g", topic, 0, at, 32, null);
            if (r == null || r.getMessageBufferList().isEmpty()) {
                return all.toString();
            }
            for (ByteBuffer b : r.getMessageBufferList()) {
                MessageExt m = MessageDecoder.decode(b);
                all.append(new String(m.getBody(), "UTF-8")).append(' ');
                all.append(m.getProperty("INNER_MULTI_QUEUE_OFFSET")).append(';');
            }
            at = r.getNextBeginOffset();
            r.release();
        }
    }
}

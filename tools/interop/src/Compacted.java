import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.*; // the versions keep their message classes in different packages
import org.apache.rocketmq.store.*;

/** Compaction topics of the real store (5.x): puts keyed messages, compacts at once, reads by its public interface. */
final class Compacted {
    private Compacted() {
    }

    /** Stores that are created from now on know this topic, with one queue, as a compaction topic. */
    static void know(String topic) throws Exception {
        TopicConfig c = new TopicConfig(topic);
        c.setReadQueueNums(1);
        c.setWriteQueueNums(1);
        c.getClass().getMethod("setAttributes", Map.class)
            .invoke(c, new LinkedHashMap<>(Collections.singletonMap("cleanup.policy", "COMPACTION")));
        Stores.topics = new ConcurrentHashMap<>();
        Stores.topics.put(topic, c);
    }

    /** Puts messages `first` to `first + count`; the key of message i is k and i % keys, every 23rd has no body. */
    static void put(DefaultMessageStore s, String topic, int first, int count, int keys) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);
        for (int i = first; i < first + count; i++) {
            Map<String, String> p = new LinkedHashMap<>();
            p.put("KEYS", "k" + i % keys);
            p.put("TAGS", "java");
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic(topic);
            m.setQueueId(0);
            m.setBody(i % 23 == 0 ? new byte[0] : ("value-" + i).getBytes("UTF-8"));
            m.setTagsCode("java".hashCode());
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

    /** What a broker's timer does every compactionScheduleInternal. */
    static void compact(DefaultMessageStore s) throws Exception {
        Field of = DefaultMessageStore.class.getDeclaredField("compactionStore");
        of.setAccessible(true);
        Object store = of.get(s);
        Field table = store.getClass().getDeclaredField("compactionLogTable");
        table.setAccessible(true);
        for (Object log : ((Map<?, ?>) table.get(store)).values()) {
            Method m = log.getClass().getDeclaredMethod("doCompaction");
            m.setAccessible(true);
            m.invoke(log);
        }
    }

    /** "queue offset key body;" of each message from the queue's begin on. A compaction topic is read from its compaction log. */
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
                all.append(m.getQueueOffset()).append(' ').append(m.getKeys()).append(' ');
                all.append(m.getBody() == null ? "" : new String(m.getBody(), "UTF-8")).append(';');
            }
            at = r.getNextBeginOffset();
            r.release();
        }
    }
}

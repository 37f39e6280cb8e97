import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.*; // the versions keep their message classes in different packages
import org.apache.rocketmq.store.*;

/** Inner batches and batch queues of the real store (5.x): puts them, and reads them by its public interface. */
final class Batches {
    private static final int INNER_BATCH = 1 << 7, NEED_UNWRAP = 1 << 6;

    private Batches() {
    }

    /** Stores that are created from now on know this topic, with batch queues. */
    static void know(String topic) throws Exception {
        TopicConfig c = new TopicConfig(topic);
        c.getClass().getMethod("setAttributes", Map.class)
            .invoke(c, new LinkedHashMap<>(Collections.singletonMap("queue.type", "BatchCQ")));
        Stores.topics.put(topic, c);
    }

    /** Puts `count` records into queues 0 and 1; record i has 1 + i % most messages, whose bodies are who-i-k. */
    static void put(DefaultMessageStore s, String topic, String who, int count, int most) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);
        for (int i = 0; i < count; i++) {
            List<Message> inner = new ArrayList<>();
            for (int k = 0; k <= i % most; k++) {
                Message m = new Message(topic, (who + "-" + i + "-" + k).getBytes("UTF-8"));
                m.setFlag(k);
                m.putUserProperty("n", "" + k);
                m.setTags(i % 3 == 0 ? "fizz" : "java");
                inner.add(m);
            }
            Map<String, String> p = new LinkedHashMap<>();
            p.put("INNER_NUM", "" + inner.size());
            p.put("TAGS", i % 3 == 0 ? "fizz" : "java");
            p.put("KEYS", who + i);
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic(topic);
            m.setQueueId(i % 2);
            m.setBody(MessageDecoder.encodeMessages(inner));
            m.setSysFlag(INNER_BATCH | NEED_UNWRAP);
            m.setBornTimestamp(1700000000000L + i);
            m.setBornHost(host);
            m.setStoreHost(host);
            MessageAccessor.setProperties(m, p);
            m.setPropertiesString(MessageDecoder.messageProperties2String(p));
            PutMessageResult r = s.putMessage(m);
            if (!r.isOk()) {
                throw new IllegalStateException("record " + i + ": " + r.getPutMessageStatus());
            }
        }
    }

    /** The status of a put of one message: `kind` plain, inner, or number: with INNER_NUM and no flag. */
    static String status(DefaultMessageStore s, String topic, String kind) throws Exception {
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);
        Map<String, String> p = new LinkedHashMap<>();
        if (!kind.equals("plain")) {
            p.put("INNER_NUM", "1");
        }
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        m.setTopic(topic);
        m.setQueueId(0);
        m.setBody(MessageDecoder.encodeMessages(Collections.singletonList(new Message(topic, new byte[3]))));
        m.setSysFlag(kind.equals("inner") ? INNER_BATCH | NEED_UNWRAP : 0);
        m.setBornTimestamp(1700000000000L);
        m.setBornHost(host);
        m.setStoreHost(host);
        MessageAccessor.setProperties(m, p);
        m.setPropertiesString(MessageDecoder.messageProperties2String(p));
        return s.putMessage(m).getPutMessageStatus().name();
    }

    /** The messages of a queue from its begin on, unwrapped as a client does: queue offset, body, flag, property n. */
    static String get(DefaultMessageStore s, String topic, int queueId) throws Exception {
        StringBuilder all = new StringBuilder();
        long at = Math.max(s.getMinOffsetInQueue(topic, queueId), 0);
        while (true) {
            GetMessageResult r = s.getMessage("g", topic, queueId, at, 32, null);
            if (r == null || r.getMessageBufferList().isEmpty()) {
                return all.toString();
            }
            for (ByteBuffer b : r.getMessageBufferList()) {
                MessageExt outer = MessageDecoder.decode(b);
                List<MessageExt> inner = new ArrayList<>();
                MessageDecoder.class.getMethod("decodeMessage", MessageExt.class, List.class).invoke(null, outer, inner);
                for (MessageExt m : inner) {
                    all.append(m.getQueueOffset()).append(' ').append(new String(m.getBody(), "UTF-8")).append(' ');
                    all.append(m.getFlag()).append(' ').append(m.getProperty("n")).append(';');
                }
            }
            at = r.getNextBeginOffset();
            r.release();
        }
    }

    /** Of a queue: min, max, total, then next offset, count and status of gets from the offsets given as offset,max. */
    static String ask(DefaultMessageStore s, String topic, int queueId, String[] gets) throws Exception {
        StringBuilder all = new StringBuilder();
        all.append(s.getMinOffsetInQueue(topic, queueId)).append(' ').append(s.getMaxOffsetInQueue(topic, queueId));
        for (String get : gets) {
            long at = Long.parseLong(get.substring(0, get.indexOf(',')));
            int max = Integer.parseInt(get.substring(get.indexOf(',') + 1));
            GetMessageResult r = s.getMessage("g", topic, queueId, at, max, null);
            all.append(';').append(r.getStatus()).append(' ').append(r.getNextBeginOffset()).append(' ');
            all.append(r.getMessageBufferList().size()).append(' ').append(r.getMessageCount());
            r.release();
        }
        return all.toString();
    }

    /** getOffsetInQueueByTime of each time, in milliseconds. */
    static String times(DefaultMessageStore s, String topic, int queueId, String[] times) {
        StringBuilder all = new StringBuilder();
        for (String time : times) {
            all.append(s.getOffsetInQueueByTime(topic, queueId, Long.parseLong(time))).append(' ');
        }
        return all.toString().trim();
    }
}

import java.io.File;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Prints everything the store's public interface returns, as JSON lines (see the golden README for the fields). */
final class StoreDump {
    private final DefaultMessageStore s;
    private final PrintWriter out;
    private final TreeMap<String, TreeMap<Integer, Object>> queues = new TreeMap<>();
    private final TreeMap<String, LinkedHashSet<String>> keys = new TreeMap<>();
    private final TreeMap<Long, Boolean> reached = new TreeMap<>();
    private long messages;
    long problems;
    static long lastMessages = -1;

    private StoreDump(DefaultMessageStore s, PrintWriter out) {
        this.s = s;
        this.out = out;
    }

    /** Loads the directory in place, recovers it and starts it as a reader; null if load() said false. */
    static DefaultMessageStore open(File root, Map<String, String> props) throws Exception {
        MessageStoreConfig c = Stores.config(root, props);
        // As a slave, the store delivers no delayed messages and so changes nothing that it reads.
        c.setBrokerRole("SLAVE");
        DefaultMessageStore s = Stores.create(c);
        if (!s.load()) {
            return null;
        }
        s.start();
        Stores.settle(s);
        return s;
    }

    /**
     * Prints all that the store returns (s == null: that it did not load). The store is NOT shut down. Returns 0 if all
     * went well, 2 if there is no store, 3 if a queue entry could not be read back.
     */
    static int print(DefaultMessageStore s, PrintWriter out) throws Exception {
        if (s == null) {
            out.println(new Json().put("t", "store").put("load", false));
            out.flush();
            return 2;
        }
        StoreDump d = new StoreDump(s, out);
        d.all();
        out.flush();
        lastMessages = d.messages;
        return d.problems == 0 ? 0 : 3;
    }

    private static String ip(SocketAddress a) {
        return ((InetSocketAddress) a).getAddress().getHostAddress();
    }

    private static int port(SocketAddress a) {
        return ((InetSocketAddress) a).getPort();
    }

    private void all() throws Exception {
        ConcurrentMap<String, ? extends ConcurrentMap<Integer, ?>> t = s.getConsumeQueueTable();
        for (Map.Entry<String, ? extends ConcurrentMap<Integer, ?>> e : t.entrySet()) {
            TreeMap<Integer, Object> m = new TreeMap<>();
            for (Map.Entry<Integer, ?> q : e.getValue().entrySet()) {
                // the 4.9.x schedule service makes empty in-memory queues on load: not part of the data
                if (((ConsumeQueue) q.getValue()).getMaxOffsetInQueue() > 0) {
                    m.put(q.getKey(), q.getValue());
                }
            }
            if (!m.isEmpty()) {
                queues.put(e.getKey(), m);
            }
        }
        int nq = 0;
        for (TreeMap<Integer, Object> m : queues.values()) {
            nq += m.size();
        }
        out.println(new Json().put("t", "store").put("load", true).put("minPhyOffset", s.getMinPhyOffset())
            .put("maxPhyOffset", s.getMaxPhyOffset()).put("queues", nq));
        for (Map.Entry<String, TreeMap<Integer, Object>> e : queues.entrySet()) {
            for (Map.Entry<Integer, Object> q : e.getValue().entrySet()) {
                queue(e.getKey(), q.getKey(), (ConsumeQueue) q.getValue());
            }
        }
        probes();
        keyQueries();
        walkLog();
        out.println(new Json().put("t", "end").put("messages", messages).put("problems", problems));
    }

    private Json record(Json j, ByteBuffer raw) {
        byte[] a = new byte[raw.remaining()];
        raw.duplicate().get(a);
        CRC32 crc = new CRC32();
        crc.update(a);
        MessageExt m = MessageDecoder.decode(ByteBuffer.wrap(a), true, false);
        if (m == null) {
            problems++;
            return j.put("decoded", false);
        }
        byte[] body = m.getBody() == null ? new byte[0] : m.getBody();
        // the raw properties bytes, as stored
        ByteBuffer b = ByteBuffer.wrap(a);
        int magic = b.getInt(4);
        int sys = m.getSysFlag();
        int pos = 4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + ((sys & 0x10) == 0 ? 8 : 20) + 8 + ((sys & 0x20) == 0 ? 8 : 20) + 4 + 8;
        pos += 4 + b.getInt(pos);
        if (magic == MessageDecoder.MESSAGE_MAGIC_CODE) {
            pos += 1 + b.get(pos);
        } else {
            pos += 2 + b.getShort(pos);
        }
        byte[] pr = new byte[b.getShort(pos)];
        b.position(pos + 2);
        b.get(pr);
        CRC32 bc = new CRC32();
        bc.update(body);
        Map<String, String> p = m.getProperties() == null ? new TreeMap<>() : new TreeMap<>(m.getProperties());
        return j.put("phyOffset", m.getCommitLogOffset()).put("size", m.getStoreSize()).put("magic", magic & 0xffffffffL)
            .put("msgId", m.getMsgId()).put("topic", m.getTopic()).put("queueId", m.getQueueId())
            .put("queueOffset", m.getQueueOffset()).put("flag", m.getFlag()).put("sysFlag", sys)
            .put("bornTs", m.getBornTimestamp()).put("bornIp", ip(m.getBornHost())).put("bornPort", port(m.getBornHost()))
            .put("storeTs", m.getStoreTimestamp()).put("storeIp", ip(m.getStoreHost())).put("storePort", port(m.getStoreHost()))
            .put("reconsume", m.getReconsumeTimes()).put("prepOffset", m.getPreparedTransactionOffset())
            .put("bodyCrc", m.getBodyCRC()).put("bodyCrcOk", (bc.getValue() & 0x7fffffffL) == m.getBodyCRC())
            .put("bodyLen", body.length).put("body", Json.hex(body))
            .put("props", p).put("propsHex", Json.hex(pr)).put("recordCrc32", crc.getValue());
    }

    private void queue(String topic, int qid, ConsumeQueue cq) throws Exception {
        long min = s.getMinOffsetInQueue(topic, qid);
        long max = s.getMaxOffsetInQueue(topic, qid);
        out.println(new Json().put("t", "queue").put("topic", topic).put("queueId", qid).put("min", min).put("max", max)
            .put("earliestTime", s.getEarliestMessageTime(topic, qid)).put("total", s.getMessageTotalInQueue(topic, qid)));
        TreeSet<Long> times = new TreeSet<>();
        long off = min;
        while (off < max) {
            GetMessageResult r = s.getMessage("golden_group", topic, qid, off, 32, null);
            if (r == null || r.getStatus() != GetMessageStatus.FOUND) {
                problems++;
                out.println(new Json().put("t", "problem").put("topic", topic).put("queueId", qid).put("offset", off)
                    .put("status", r == null ? "null" : r.getStatus().name()));
                off = r == null || r.getNextBeginOffset() <= off ? off + 1 : r.getNextBeginOffset();
                continue;
            }
            long o = off;
            for (ByteBuffer raw : r.getMessageBufferList()) {
                ByteBuffer view = raw.slice();
                MessageExt head = MessageDecoder.decode(view.duplicate(), false, false);
                // The record stands in the row of its own queue, or of the log.
                boolean light = topic.startsWith("%LMQ%") && head != null && !topic.equals(head.getTopic());
                Json j = light ? new Json().put("t", "light").put("topic", topic).put("queueId", qid).put("cqOffset", o)
                    : new Json().put("t", "msg").put("cqOffset", o);
                SelectMappedBufferResult ix = cq.getIndexBuffer(o);
                if (ix != null) {
                    try {
                        ByteBuffer b = ix.getByteBuffer();
                        long phy = b.getLong();
                        int size = b.getInt();
                        long tag = b.getLong();
                        j.put("cqPhyOffset", phy).put("cqSize", size).put("tagsCode", tag);
                        if (cq.isExtAddr(tag) && !light) {
                            ConsumeQueueExt.CqExtUnit u = new ConsumeQueueExt.CqExtUnit();
                            boolean found = cq.getExt(tag, u);
                            Json x = new Json().put("found", found);
                            if (found) {
                                x.put("tagsCode", u.getTagsCode()).put("storeTs", u.getMsgStoreTime())
                                    .put("bitMap", Json.hex(u.getFilterBitMap()));
                            }
                            j.raw("ext", x.toString());
                        }
                    } finally {
                        ix.release();
                    }
                }
                out.println(light ? j : record(j, view));
                messages += light ? 0 : 1;
                if (head != null) {
                    times.add(head.getStoreTimestamp());
                }
                if (head != null && !light) {
                    reached.put(head.getCommitLogOffset(), true);
                    LinkedHashSet<String> ks = keys.computeIfAbsent(topic, k -> new LinkedHashSet<>());
                    if (head.getKeys() != null) {
                        for (String k : head.getKeys().split(MessageConst.KEY_SEPARATOR)) {
                            if (!k.isEmpty()) {
                                ks.add(k);
                            }
                        }
                    }
                    String u = head.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
                    if (u != null) {
                        ks.add(u);
                    }
                }
                o++;
            }
            r.release();
            off = r.getNextBeginOffset();
        }
        if (!times.isEmpty()) {
            List<Long> all = new ArrayList<>(times);
            TreeSet<Long> ask = new TreeSet<>();
            int n = all.size();
            for (int i = 0; i < Math.min(n, 10); i++) {
                long ts = all.get(n <= 10 ? i : (int) ((long) i * (n - 1) / 9));
                ask.add(ts);
                ask.add(ts + 1);
            }
            ask.add(0L);
            ask.add(all.get(0) - 1);
            ask.add(all.get(n - 1) + 100_000);
            for (long ts : ask) {
                out.println(new Json().put("t", "time").put("topic", topic).put("queueId", qid).put("ts", ts)
                    .put("offset", s.getOffsetInQueueByTime(topic, qid, ts)));
            }
        }
    }

    private void get(String topic, int qid, long off, int max) {
        GetMessageResult r = s.getMessage("golden_group", topic, qid, off, max, null);
        out.println(new Json().put("t", "get").put("topic", topic).put("queueId", qid).put("offset", off).put("maxMsgs", max)
            .put("status", r.getStatus().name()).put("next", r.getNextBeginOffset()).put("min", r.getMinOffset())
            .put("max", r.getMaxOffset()).put("n", r.getMessageCount()).put("bytes", r.getBufferTotalSize()));
        r.release();
    }

    private void probes() throws Exception {
        for (Map.Entry<String, TreeMap<Integer, Object>> e : queues.entrySet()) {
            for (int q : e.getValue().keySet()) {
                String t = e.getKey();
                long max = s.getMaxOffsetInQueue(t, q);
                get(t, q, -1, 32);
                get(t, q, 0, 1);
                get(t, q, 0, 7);
                get(t, q, 0, 1000);
                get(t, q, max / 2, 32);
                get(t, q, Math.max(0, max - 1), 32);
                get(t, q, max, 32);
                get(t, q, max + 1, 32);
                get(t, q, max + 1000, 32);
            }
            get(e.getKey(), 999, 0, 32);
        }
        get("NoSuchTopic", 0, 0, 32);
        get("NoSuchTopic", 0, 5, 32);
    }

    private void key(String topic, String key, int max, long begin, long end) {
        QueryMessageResult r = s.queryMessage(topic, key, max, begin, end);
        StringBuilder h = new StringBuilder("[");
        for (ByteBuffer b : r.getMessageBufferList()) {
            if (h.length() > 1) {
                h.append(',');
            }
            h.append(b.slice().getLong(28));
        }
        out.println(new Json().put("t", "key").put("topic", topic).put("key", key).put("maxNum", max).put("begin", begin)
            .put("end", end).put("indexLastTs", r.getIndexLastUpdateTimestamp())
            .put("indexLastPhy", r.getIndexLastUpdatePhyoffset()).raw("hits", h + "]"));
        r.release();
    }

    private void keyQueries() throws Exception {
        final long far = 4_000_000_000_000L;
        for (Map.Entry<String, LinkedHashSet<String>> e : keys.entrySet()) {
            String t = e.getKey();
            int i = 0;
            for (String k : e.getValue()) {
                if (i >= 400) {
                    break;
                }
                key(t, k, 32, 0, far);
                if (i++ % 16 == 0) {
                    QueryMessageResult r = s.queryMessage(t, k, 32, 0, far);
                    List<Long> ts = new ArrayList<>();
                    for (ByteBuffer b : r.getMessageBufferList()) {
                        MessageExt m = MessageDecoder.decode(b.slice(), false, false);
                        if (m != null) {
                            ts.add(m.getStoreTimestamp());
                        }
                    }
                    r.release();
                    key(t, k, 1, 0, far);
                    key(t, k, 64, 0, far);
                    key(t, k, 100, 0, far);
                    if (!ts.isEmpty()) {
                        long a = ts.get(0);
                        long z = ts.get(ts.size() - 1);
                        key(t, k, 32, a, z);
                        key(t, k, 32, a + 1000, far);
                        key(t, k, 32, 0, a - 1000);
                        key(t, k, 32, z + 60_000, far);
                    }
                }
            }
            key(t, "no-such-key", 32, 0, far);
        }
        key("NoSuchTopic", "k", 32, 0, far);
    }

    /** Walks the commit log record by record; prints the records that no queue leads to in full. */
    private void walkLog() {
        long off = s.getMinPhyOffset();
        long max = s.getMaxPhyOffset();
        int fileSize = s.getMessageStoreConfig().getMappedFileSizeCommitLog();
        while (off >= 0 && off < max) {
            SelectMappedBufferResult r = s.getCommitLogData(off);
            if (r == null) {
                problems++;
                out.println(new Json().put("t", "problem").put("phyOffset", off).put("status", "no data"));
                return;
            }
            try {
                ByteBuffer b = r.getByteBuffer().slice();
                if (b.remaining() < 8) {
                    off = off - off % fileSize + fileSize;
                    continue;
                }
                int size = b.getInt(0);
                int magic = b.getInt(4);
                if (magic == 0xcbd43194) { // BLANK_MAGIC_CODE
                    out.println(new Json().put("t", "log").put("kind", "blank").put("phyOffset", off).put("size", size));
                    off = off - off % fileSize + fileSize;
                    continue;
                }
                if (size <= 0 || size > b.remaining()) {
                    problems++;
                    out.println(new Json().put("t", "problem").put("phyOffset", off).put("status", "bad size " + size));
                    return;
                }
                b.limit(size);
                boolean inQueue = reached.containsKey(off);
                if (inQueue) {
                    out.println(new Json().put("t", "log").put("kind", "msg").put("phyOffset", off).put("size", size));
                } else {
                    out.println(record(new Json().put("t", "log").put("kind", "unqueued"), b));
                }
                MessageExt m = s.lookMessageByOffset(off);
                if (m == null || m.getCommitLogOffset() != off) {
                    problems++;
                    out.println(new Json().put("t", "problem").put("phyOffset", off).put("status", "lookMessageByOffset"));
                }
                off += size;
            } finally {
                r.release();
            }
        }
    }

    static PrintWriter writer(java.io.OutputStream o) {
        java.io.OutputStream buffered = new java.io.BufferedOutputStream(o, 1 << 16);
        return new PrintWriter(new java.io.OutputStreamWriter(buffered, StandardCharsets.UTF_8));
    }
}

import java.io.File;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The messages of the benchmark, the store under test, and the producers that drive it. */
final class BenchLoad {
    // ---- messages
    static final int POOL = 1 << 16;
    static String[] propStr;
    static Map<String, String>[] propMap;
    static byte[][] bodies;
    static InetSocketAddress born, store;

    @SuppressWarnings("unchecked")
    static void prepare(int body, boolean full) throws Exception {
        born = new InetSocketAddress(InetAddress.getByAddress(new byte[] {(byte) 192, 0, 2, 20}), 45678);
        store = new InetSocketAddress(InetAddress.getByAddress(new byte[] {(byte) 192, 0, 2, 10}), 10911);
        Random r = new Random(42);
        bodies = new byte[64][];
        for (int i = 0; i < 64; i++) { bodies[i] = new byte[body]; r.nextBytes(bodies[i]); }
        propStr = new String[POOL];
        propMap = new Map[POOL];
        for (int i = 0; i < POOL; i++) {
            Map<String, String> p = new LinkedHashMap<>();
            if (full) {
                p.put("KEYS", "order-" + (100000 + i));
                String id = String.format("C0000214%08X4EF3B4AAC2%06X", i * 2654435761L & 0xffffffffL, i);
                p.put("UNIQ_KEY", id.substring(0, 32));
                p.put("WAIT", "true");
                p.put("TAGS", "Tag" + (i & 7));
            }
            propMap[i] = p;
            propStr[i] = full ? MessageDecoder.messageProperties2String(p) : null;
        }
    }

    static MessageExtBrokerInner msg(long i, String topic, int queues, boolean full) {
        int k = (int) (i & (POOL - 1));
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        m.setTopic(topic);
        m.setQueueId((int) (i % queues));
        m.setBody(bodies[k & 63]);
        m.setBornTimestamp(1700000000000L + i);
        m.setBornHost(born);
        m.setStoreHost(store);
        MessageAccessor.setProperties(m, propMap[k]);
        if (full) {
            m.setPropertiesString(propStr[k]);
            m.setTagsCode(propMap[k].get("TAGS").hashCode());
        }
        return m;
    }

    static MessageExtBatch batch(byte[] enc, long i, String topic, int queues) {
        MessageExtBatch b = new MessageExtBatch();
        b.setTopic(topic);
        b.setQueueId((int) (i % queues));
        b.setBody(enc);
        b.setBornTimestamp(1700000000000L + i);
        b.setBornHost(born);
        b.setStoreHost(store);
        return b;
    }

    // ---- store
    static DefaultMessageStore open(File dir, String mode, Map<String, String> more) throws Exception {
        TreeMap<String, String> p = Stores.props();
        p.put("flushDiskType", mode.startsWith("sync") ? "SYNC_FLUSH" : "ASYNC_FLUSH");
        p.put("messageIndexEnable", Bench.o("index", "true"));
        if (mode.equals("async_pool")) {
            p.put("transientStorePoolEnable", "true");
            p.put("transientStorePoolSize", Bench.o("pool", "3"));
        }
        if (mode.equals("async_warm")) p.put("warmMapedFileEnable", "true");
        p.putAll(more);
        for (Map.Entry<String, String> e : Bench.opt.entrySet()) {
            if (e.getKey().startsWith("cfg.")) p.put(e.getKey().substring(4), e.getValue());
        }
        MessageStoreConfig c = Stores.config(dir, p);
        DefaultMessageStore s = Stores.create(c);
        if (!s.load()) throw new IllegalStateException("load failed");
        s.start();
        return s;
    }

    static final class Run { double secs; long msgs, bytes, fails; Hist h = new Hist(); double drainMs; int stored; }

    static Run drive(DefaultMessageStore s, int threads, int window, int batchN, int body, boolean full, double seconds,
                     long capBytes, int topics, int queues) throws Exception {
        Run run = new Run();
        AtomicBoolean stop = new AtomicBoolean();
        AtomicLong total = new AtomicLong(), bytes = new AtomicLong(), fails = new AtomicLong();
        Thread[] ts = new Thread[threads];
        Hist[] hs = new Hist[threads];
        byte[][] encs = null;
        if (batchN > 1) {
            encs = new byte[64][];
            for (int e = 0; e < encs.length; e++) {
                List<Message> l = new ArrayList<>();
                for (int i = 0; i < batchN; i++) {
                    int k = (e * batchN + i) & (POOL - 1);
                    Message m = new Message();
                    m.setTopic("bench"); m.setBody(bodies[k & 63]);
                    MessageAccessor.setProperties(m, propMap[k]);
                    l.add(m);
                }
                encs[e] = MessageDecoder.encodeMessages(l);
            }
        }
        final byte[][] fencs = encs;
        String[] names = new String[topics];
        for (int i = 0; i < topics; i++) names[i] = "BenchTopic" + i;
        long start = System.nanoTime();
        long deadline = start + (long) (seconds * 1e9);
        for (int t = 0; t < threads; t++) {
            final int id = t;
            final Hist h = hs[t] = new Hist();
            ts[t] = new Thread(() -> {
                Semaphore sem = new Semaphore(window);
                long n = 0, b = 0, f = 0;
                long i = (long) id << 32;
                try {
                    while (!stop.get()) {
                        String topic = names[(int) (i % topics)];
                        long t0;
                        if (window > 1) {
                            // asynchronous: up to `window` puts under way; latency runs from the call to the completion
                            MessageExtBrokerInner m = msg(i, topic, queues, full);
                            sem.acquire();
                            t0 = System.nanoTime();
                            CompletableFuture<PutMessageResult> cf = s.asyncPutMessage(m);
                            cf.whenComplete((r, e) -> {
                                h.addShared(System.nanoTime() - t0);
                                if (e != null || r == null || r.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                                    fails.incrementAndGet();
                                } else {
                                    total.incrementAndGet();
                                    bytes.addAndGet(r.getAppendMessageResult().getWroteBytes());
                                }
                                sem.release();
                            });
                            if (bytes.get() >= capBytes || System.nanoTime() >= deadline) break;
                        } else {
                            PutMessageResult r;
                            if (batchN > 1) {
                                MessageExtBatch m = batch(fencs[(int) (i & 63)], i, topic, queues);
                                t0 = System.nanoTime();
                                r = s.putMessages(m);
                            } else {
                                MessageExtBrokerInner m = msg(i, topic, queues, full);
                                t0 = System.nanoTime();
                                r = s.putMessage(m);
                            }
                            long t1 = System.nanoTime();
                            if (r.getPutMessageStatus() == PutMessageStatus.PUT_OK) {
                                h.add(t1 - t0);
                                n += batchN;
                                b += r.getAppendMessageResult().getWroteBytes();
                            } else {
                                f++;
                                Thread.sleep(1);
                            }
                            if (b * threads >= capBytes || t1 >= deadline) break;
                        }
                        i++;
                    }
                    sem.acquire(window);
                } catch (Exception e) {
                    e.printStackTrace();
                    f += 1_000_000_000L;
                }
                total.addAndGet(n); bytes.addAndGet(b); fails.addAndGet(f);
            });
            ts[t].start();
        }
        for (Thread t : ts) t.join();
        run.secs = (System.nanoTime() - start) / 1e9;
        for (Hist h : hs) run.h.merge(h);
        run.msgs = total.get(); run.bytes = bytes.get(); run.fails = fails.get();
        return run;
    }
}

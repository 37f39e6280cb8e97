import java.io.File;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
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

    /** How a stretch is driven. */
    static final class Plan {
        int threads = 1, window = 1, batch = 1, queues = 4;
        boolean full, timed;
        double seconds;
        long cap, rate; // bytes; puts a second of all threads together, 0: as fast as it goes
        String[] names = {"BenchTopic0"};
        byte[][] encoded;
        volatile long start;

        String topic(long i) { return names[(int) (i % names.length)]; }

        /** The same for other lengths. */
        Plan with(double seconds, long cap, long rate, boolean timed) {
            Plan p = new Plan();
            p.threads = threads; p.window = window; p.batch = batch; p.queues = queues; p.full = full; p.names = names;
            p.encoded = encoded; p.seconds = seconds; p.cap = cap; p.rate = rate; p.timed = timed;
            return p;
        }

        /** One thread, a put at a time. */
        Plan single(double seconds, long cap) {
            Plan p = with(seconds, cap, 0, false);
            p.threads = p.window = p.batch = 1;
            return p;
        }
    }

    static byte[][] encoded(int batch) {
        byte[][] encs = new byte[64][];
        for (int e = 0; e < encs.length; e++) {
            List<Message> l = new ArrayList<>();
            for (int i = 0; i < batch; i++) {
                int k = (e * batch + i) & (POOL - 1);
                Message m = new Message();
                m.setTopic("bench"); m.setBody(bodies[k & 63]);
                MessageAccessor.setProperties(m, propMap[k]);
                l.add(m);
            }
            encs[e] = MessageDecoder.encodeMessages(l);
        }
        return encs;
    }

    /** What came of it; secs ends with the last put. */
    static final class Run { double secs; long msgs, bytes, fails, spun, end; Hist h = new Hist(), service = new Hist(); }

    /** All producers wait at a line until the last of them is there. */
    static Run drive(DefaultMessageStore s, Plan plan) throws Exception {
        CountDownLatch ready = new CountDownLatch(plan.threads), go = new CountDownLatch(1);
        BenchProducer[] producers = new BenchProducer[plan.threads];
        for (int i = 0; i < plan.threads; i++) (producers[i] = new BenchProducer(s, plan, i, ready, go)).start();
        ready.await();
        plan.start = System.nanoTime();
        go.countDown();
        Run run = new Run();
        long ended = plan.start;
        for (BenchProducer p : producers) {
            p.join();
            if (p.failed != null) throw p.failed;
            ended = Math.max(ended, p.ended);
            run.msgs += p.msgs; run.bytes += p.bytes; run.fails += p.fails; run.spun += p.spun;
            run.end = Math.max(run.end, p.end);
            run.h.merge(p.h); run.service.merge(p.service);
        }
        run.secs = (ended - plan.start) / 1e9;
        return run;
    }

    /**
     * Until the log is on the device up to `end`, and then in its queues; milliseconds of the first, and of both. A call of
     * flush writes and syncs one file only, so that it takes as many as there are files.
     */
    static double[] drain(DefaultMessageStore s, long end) throws InterruptedException {
        long t0 = System.nanoTime();
        while (s.getCommitLog().flush() < end) {
            if (System.nanoTime() - t0 > 300_000_000_000L) throw new IllegalStateException("not flushed after 300 s");
        }
        double flushMs = (System.nanoTime() - t0) / 1e6;
        while (s.dispatchBehindBytes() > 0) Thread.sleep(1);
        return new double[] {flushMs, (System.nanoTime() - t0) / 1e6};
    }

    /** Lets go by what was left to the device and to the machine, as runner.settle() does on the other side. */
    static void settle(double seconds) throws Exception {
        if (seconds <= 0) return;
        System.gc();
        new ProcessBuilder("sync").start().waitFor();
        Thread.sleep((long) (seconds * 1000));
    }
}

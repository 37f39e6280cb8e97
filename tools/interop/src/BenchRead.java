import java.io.File;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/** getMessage, queryMessage and the time search on a store just written. */
final class BenchRead {
    static long pull(DefaultMessageStore s, int queues, int max, boolean decode, Hist h, long limit) throws Exception {
        long n = 0;
        for (int q = 0; q < queues && n < limit; q++) {
            long off = 0, end = s.getMaxOffsetInQueue("BenchTopic0", q);
            while (off < end && n < limit) {
                long t0 = System.nanoTime();
                GetMessageResult r = s.getMessage("g", "BenchTopic0", q, off, max, null);
                h.add(System.nanoTime() - t0);
                if (r.getStatus() != GetMessageStatus.FOUND) throw new IllegalStateException(r.getStatus() + " at " + off);
                if (decode) {
                    for (ByteBuffer b : r.getMessageBufferList()) {
                        if (MessageDecoder.decode(b, true, false) == null) throw new IllegalStateException("decode");
                    }
                }
                n += r.getMessageCount();
                off = r.getNextBeginOffset();
                r.release();
            }
        }
        return n;
    }

    static void read() throws Exception {
        int body = Bench.oi("body", 1024), queues = 4, reps = Bench.oi("reps", 3);
        long n = Bench.oi("n", 400000);
        BenchLoad.prepare(body, true);
        File d = new File(Bench.o("dir", "/var/tmp/rmqbench"), "read");
        Stores.deleteTree(d);
        DefaultMessageStore s = BenchLoad.open(d, "async", Map.of("maxMsgsNumBatch", "64"));
        for (long i = 0; i < n;) {
            if (s.putMessage(BenchLoad.msg(i, "BenchTopic0", queues, true)).isOk()) {
                i++;
            } else {
                Thread.sleep(5); // the page cache is busy
            }
        }
        BenchLoad.drain(s, s.getMaxPhyOffset());
        Stores.settle(s);
        for (int max : new int[] {32, 1000}) {
            s.getMessageStoreConfig().setMaxTransferCountOnMessageInMemory(max);
            s.getMessageStoreConfig().setMaxTransferBytesOnMessageInMemory(max == 32 ? 262144 : 16 << 20);
            for (boolean decode : new boolean[] {false, true}) {
                String[] keys = {"msgs_per_s", "pulls_per_s", "p50_us", "p99_us", "p999_us", "max_us", "cpu_ns_per_msg",
                    "foreign"};
                Map<String, double[]> all = new LinkedHashMap<>();
                for (String k : keys) all.put(k, new double[reps]);
                pull(s, queues, max, decode, new Hist(), n);
                for (int r = 0; r < reps; r++) {
                    Hist h = new Hist();
                    BenchWatch watch = new BenchWatch();
                    long t0 = System.nanoTime(), c = 0;
                    while (System.nanoTime() - t0 < 1_500_000_000L) c += pull(s, queues, max, decode, h, n);
                    double sec = (System.nanoTime() - t0) / 1e9;
                    watch.stop();
                    double[] v = {c / sec, h.n / sec, h.us(.5), h.us(.99), h.us(.999), h.max / 1e3, watch.ownSecs * 1e9 / c,
                        watch.foreign};
                    for (int i = 0; i < keys.length; i++) all.get(keys[i])[r] = v[i];
                }
                Bench.summary(new Json().put("bench", "getMessage").put("summary", true).put("version", Bench.version())
                    .put("body", body).put("maxMsgs", max).put("decode", decode).put("reps", reps), all);
            }
        }
        String[] keys = {"queries_per_s", "p50_us", "p99_us", "p999_us", "max_us"};
        for (String kind : new String[] {"UNIQ_KEY", "KEYS"}) {
            Map<String, double[]> all = new LinkedHashMap<>();
            for (String k : keys) all.put(k, new double[reps]);
            long hits = 0, asked = 0;
            for (int r = -1; r < reps; r++) {
                Hist h = new Hist();
                Random rnd = new Random(7 + r);
                long t0 = System.nanoTime();
                while (System.nanoTime() - t0 < 1_500_000_000L) {
                    String k = BenchLoad.propMap[rnd.nextInt(BenchLoad.POOL)].get(kind);
                    long a = System.nanoTime();
                    QueryMessageResult q = s.queryMessage("BenchTopic0", k, 32, 0, 4_000_000_000_000L);
                    h.add(System.nanoTime() - a);
                    hits += q.getMessageBufferList().size(); asked++;
                    q.release();
                }
                double sec = (System.nanoTime() - t0) / 1e9;
                double[] v = {h.n / sec, h.us(.5), h.us(.99), h.us(.999), h.max / 1e3};
                if (r >= 0) for (int i = 0; i < keys.length; i++) all.get(keys[i])[r] = v[i];
            }
            Bench.summary(new Json().put("bench", "queryMessage").put("summary", true).put("version", Bench.version())
                .put("body", body).put("key", kind).put("messages", n).put("hits_per_query", (double) hits / asked)
                .put("reps", reps), all);
        }
        Hist h = new Hist();
        long max = s.getMaxOffsetInQueue("BenchTopic0", 0);
        Random rnd = new Random(3);
        long base = s.getEarliestMessageTime("BenchTopic0", 0), last = s.getMessageStoreTimeStamp("BenchTopic0", 0, max - 1);
        for (int i = 0; i < 200000; i++) {
            long ts = base + (long) (rnd.nextDouble() * (last - base));
            long a = System.nanoTime();
            s.getOffsetInQueueByTime("BenchTopic0", 0, ts);
            if (i > 50000) h.add(System.nanoTime() - a);
        }
        Bench.json.println(new Json().put("bench", "getOffsetInQueueByTime").put("version", Bench.version())
            .put("queue_entries", max).put("p50_us", h.us(.5)).put("p99_us", h.us(.99)).put("max_us", h.max / 1e3));
        s.shutdown();
        Stores.deleteTree(d);
    }
}

import java.io.File;
import java.io.PrintStream;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.store.*;

/**
 * In-process benchmark of the real store.
 *   Bench put   key=value ...   mode=async|async_pool|async_warm|sync threads=1 window=1 body=1024 props=full|lean
 *                               batch=1 seconds=3 capMiB=1400 reps=3 dir=... topics=1 queues=4 index=true pretouch=MiB
 *   Bench read  body=1024 n=400000 dir=...     getMessage and queryMessage on a store just written
 *   Bench recover body=1024 mib=1024 dir=...   load()+start() time: clean, abort file, consume queues lost; warm and cold page
 *                                            cache; every start in a new process, as a broker starts (nothing JIT-compiled yet)
 * One JSON line per repetition, then one with the median and the range.
 */
public final class Bench {
    static PrintStream json;
    static final Map<String, String> opt = new HashMap<>();

    static String o(String k, String d) { return opt.getOrDefault(k, d); }
    static int oi(String k, int d) { return Integer.parseInt(o(k, "" + d)); }

    static double med(double[] a) { double[] b = a.clone(); Arrays.sort(b); return b[b.length / 2]; }
    static double min(double[] a) { return Arrays.stream(a).min().getAsDouble(); }
    static double max(double[] a) { return Arrays.stream(a).max().getAsDouble(); }

    static void summary(Json id, Map<String, double[]> m) {
        for (Map.Entry<String, double[]> e : m.entrySet()) {
            id.put(e.getKey(), med(e.getValue())).put(e.getKey() + "_min", min(e.getValue()))
                .put(e.getKey() + "_max", max(e.getValue()));
        }
        json.println(id);
        json.flush();
    }

    static String version() {
        String p = DefaultMessageStore.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return p.replaceAll(".*rocketmq-store-([0-9.]+)\\.jar", "$1");
    }

    /**
     * In a virtual machine the first use of a page of guest memory can be many times slower than its later uses.
     * Writing and deleting a file makes the host back the memory that the page cache will use in the measured run; one in
     * memory where there is room, as the write-back and the discards of one on the disk last into the run.
     */
    static void pretouch(File f, int mib) throws Exception {
        if (mib <= 0) return;
        File memory = new File("/dev/shm");
        if (memory.getUsableSpace() > (long) mib << 20) f = File.createTempFile("rmqbench", null, memory);
        byte[] b = new byte[1 << 20];
        Arrays.fill(b, (byte) 1);
        try (java.io.FileOutputStream o = new java.io.FileOutputStream(f)) {
            for (int i = 0; i < mib; i++) o.write(b);
        }
        Files.delete(f.toPath());
    }

    private static Json identity(Json j) {
        return j.put("version", version()).put("mode", o("mode", "async")).put("threads", oi("threads", 1))
            .put("window", oi("window", 1)).put("batch", oi("batch", 1)).put("body", oi("body", 1024))
            .put("props", o("props", "full")).put("index", o("index", "true")).put("pretouch", oi("pretouch", 0));
    }

    static void put() throws Exception {
        String mode = o("mode", "async");
        int threads = oi("threads", 1), window = oi("window", 1), batchN = oi("batch", 1), body = oi("body", 1024);
        int reps = oi("reps", 3), topics = oi("topics", 1), queues = oi("queues", 4);
        boolean full = o("props", "full").equals("full");
        double seconds = Double.parseDouble(o("seconds", "3"));
        long cap = oi("capMiB", 1400) * (1L << 20);
        BenchLoad.prepare(body, full);
        File base = new File(o("dir", "/var/tmp/rmqbench"));
        // JIT warm-up in a store of its own, with small files
        File w = new File(base, "warm");
        Stores.deleteTree(w);
        Map<String, String> small = new HashMap<>(Map.of("mappedFileSizeCommitLog", "" + (256 << 20),
            "maxHashSlotNum", "500000", "maxIndexNum", "2000000", "warmMapedFileEnable", "false"));
        DefaultMessageStore ws = BenchLoad.open(w, mode, small);
        double warmup = Double.parseDouble(o("warmup", "2.5"));
        BenchLoad.drive(ws, threads, window, batchN, body, full, warmup, 1L << 30, topics, queues);
        ws.shutdown();
        Stores.deleteTree(w);
        String[] keys = {"msgs_per_s", "MiB_per_s", "p50_us", "p99_us", "p999_us", "max_us", "drain_ms"};
        Map<String, double[]> all = new LinkedHashMap<>();
        for (String k : keys) all.put(k, new double[reps]);
        for (int r = 0; r < reps; r++) {
            File d = new File(base, "run" + r);
            Stores.deleteTree(d);
            DefaultMessageStore s = BenchLoad.open(d, mode, Map.of());
            BenchLoad.drive(s, 1, 1, 1, body, full, 0.05, 1 << 20, topics, queues); // makes the first files exist
            if (mode.equals("async_warm")) Thread.sleep(4000);            // the next 1 GiB files are being touched
            pretouch(new File(base, "touch"), oi("pretouch", 0));
            System.gc();
            BenchLoad.Run x = BenchLoad.drive(s, threads, window, batchN, body, full, seconds, cap, topics, queues);
            long t0 = System.nanoTime();
            s.getCommitLog().flush();
            double flushMs = (System.nanoTime() - t0) / 1e6;
            while (s.dispatchBehindBytes() > 0) Thread.sleep(1);
            double drainMs = (System.nanoTime() - t0) / 1e6;
            double[] v = {x.msgs / x.secs, x.bytes / x.secs / (1 << 20), x.h.us(.5), x.h.us(.99), x.h.us(.999),
                x.h.max / 1000.0, drainMs};
            for (int i = 0; i < keys.length; i++) all.get(keys[i])[r] = v[i];
            Json j = identity(new Json().put("bench", "put").put("rep", r));
            for (int i = 0; i < keys.length; i++) j.put(keys[i], v[i]);
            json.println(j.put("flush_ms", flushMs).put("msgs", x.msgs).put("bytes", x.bytes).put("secs", x.secs)
                .put("fails", x.fails).put("record_bytes", x.msgs == 0 ? 0 : (double) x.bytes / x.msgs));
            json.flush();
            s.shutdown();
            Stores.deleteTree(d);
        }
        summary(identity(new Json().put("bench", "put").put("summary", true)).put("reps", reps), all);
    }

    public static void main(String[] a) {
        json = System.out;
        System.setOut(System.err);
        int rc = 0;
        try {
            for (int i = 1; i < a.length; i++) {
                int k = a[i].indexOf('=');
                opt.put(a[i].substring(0, k), a[i].substring(k + 1));
            }
            switch (a[0]) {
                case "put": put(); break;
                case "read": BenchRead.read(); break;
                case "recover": BenchRecover.recover(); break;
                case "recover1": BenchRecover.recover1(); break;
                default: throw new IllegalArgumentException("put, read or recover");
            }
        } catch (Throwable e) {
            e.printStackTrace();
            rc = 1;
        }
        json.flush();
        Runtime.getRuntime().halt(rc);
    }
}

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
 *                               rate=PUTS_A_SECOND (each put has a due time) settle=SECONDS (before each stretch)
 *                               once=true (one timed stretch)
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

    /** A stretch on a store of its own, which is removed again. */
    static final class Stretch {
        BenchLoad.Run run;
        BenchWatch watch;
        double flushMs, drainMs;

        Stretch(File d, String mode, BenchLoad.Plan plan, File touch) throws Exception {
            Stores.deleteTree(d);
            DefaultMessageStore s = BenchLoad.open(d, mode, Map.of());
            BenchLoad.drain(s, BenchLoad.drive(s, plan.single(0.05, 1 << 20)).end); // makes the first files exist
            if (mode.equals("async_warm")) Thread.sleep(4000); // the next 1 GiB files are being touched
            pretouch(touch, oi("pretouch", 0));
            System.gc();
            watch = new BenchWatch();
            run = BenchLoad.drive(s, plan);
            double[] drained = BenchLoad.drain(s, run.end);
            watch.stop();
            flushMs = drained[0];
            drainMs = drained[1];
            s.shutdown();
            Stores.deleteTree(d);
        }
    }

    private static BenchLoad.Plan plan() {
        BenchLoad.Plan p = new BenchLoad.Plan();
        p.threads = oi("threads", 1);
        p.window = oi("window", 1);
        p.batch = oi("batch", 1);
        p.queues = oi("queues", 4);
        p.full = o("props", "full").equals("full");
        p.names = new String[oi("topics", 1)];
        for (int i = 0; i < p.names.length; i++) p.names[i] = "BenchTopic" + i;
        if (p.batch > 1) p.encoded = BenchLoad.encoded(p.batch);
        return p;
    }

    /** In a store of its own, with small files: what is measured later is compiled by then. At a rate: also at that rate. */
    private static void warm(File w, String mode, BenchLoad.Plan plan, long rate, double seconds) throws Exception {
        Stores.deleteTree(w);
        Map<String, String> small = new HashMap<>(Map.of("mappedFileSizeCommitLog", "" + (256 << 20),
            "maxHashSlotNum", "500000", "maxIndexNum", "2000000", "warmMapedFileEnable", "false"));
        DefaultMessageStore s = BenchLoad.open(w, mode, small);
        BenchLoad.drive(s, plan.with(seconds / 2, 1L << 29, 0, false));
        BenchLoad.Run last = BenchLoad.drive(s, plan.with(seconds / 2, 1L << 29, 0, true));
        if (rate > 0) last = BenchLoad.drive(s, plan.with(seconds, 1L << 30, rate, true));
        BenchLoad.drain(s, last.end);
        s.shutdown();
        Stores.deleteTree(w);
    }

    /**
     * Rates come from a stretch without timers where one asynchronous put is short, and times of calls from another one. At a
     * rate, in batches, in a window, where each put is durable, and with once=true, one stretch gives both.
     */
    static void put() throws Exception {
        String mode = o("mode", "async");
        int body = oi("body", 1024), reps = oi("reps", 3);
        double seconds = Double.parseDouble(o("seconds", "3")), settle = Double.parseDouble(o("settle", "4"));
        long cap = oi("capMiB", 1400) * (1L << 20), rate = oi("rate", 0);
        BenchLoad.prepare(body, o("props", "full").equals("full"));
        BenchLoad.Plan plan = plan();
        File base = new File(o("dir", "/var/tmp/rmqbench")), touch = new File(base, "touch");
        warm(new File(base, "warm"), mode, plan, rate, Double.parseDouble(o("warmup", "2.5")));
        boolean two = mode.startsWith("async") && plan.batch == 1 && plan.window == 1 && rate == 0
            && !o("once", "false").equals("true");
        String[] keys = {"msgs_per_s", "sustained_per_s", "MiB_per_s", "p50_us", "p99_us", "p999_us", "max_us", "drain_ms"};
        Map<String, double[]> all = new LinkedHashMap<>();
        for (String k : keys) all.put(k, new double[reps]);
        for (int r = 0; r < reps; r++) {
            BenchLoad.settle(settle);
            Stretch rates = new Stretch(new File(base, "run" + r), mode, plan.with(seconds, cap, rate, !two), touch);
            Stretch times = rates;
            if (two) {
                BenchLoad.settle(settle);
                times = new Stretch(new File(base, "timed" + r), mode, plan.with(seconds, cap, 0, true), touch);
            }
            BenchLoad.Run x = rates.run;
            Hist h = times.run.h;
            double[] v = {x.msgs / x.secs, x.msgs / (x.secs + rates.drainMs / 1e3), x.bytes / x.secs / (1 << 20), h.us(.5),
                h.us(.99), h.us(.999), h.max / 1000.0, rates.drainMs};
            for (int i = 0; i < keys.length; i++) all.get(keys[i])[r] = v[i];
            Json j = identity(new Json().put("bench", "put").put("rep", r));
            for (int i = 0; i < keys.length; i++) j.put(keys[i], v[i]);
            j.put("flush_ms", rates.flushMs).put("msgs", x.msgs).put("bytes", x.bytes).put("secs", x.secs)
                .put("fails", x.fails).put("record_bytes", x.msgs == 0 ? 0 : (double) x.bytes / x.msgs);
            rates.watch.into(j, x.msgs, plan.threads == 1 ? x.spun : 0);
            if (rate > 0) {
                j.put("rate_per_s", rate).put("held_per_s", x.msgs / Math.max(x.secs, (double) x.msgs / rate))
                    .put("service_p50_us", x.service.us(.5)).put("service_p999_us", x.service.us(.999))
                    .put("service_max_us", x.service.max / 1000.0);
            }
            json.println(j.raw("counts", h.counts()));
            json.flush();
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

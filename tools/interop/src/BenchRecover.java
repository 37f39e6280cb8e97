import java.io.File;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** How long a start takes: after a clean shutdown, after a crash, with the queues lost. */
final class BenchRecover {
    static void dropCaches() {
        try {
            new ProcessBuilder("sync").start().waitFor();
            Files.write(new File("/proc/sys/vm/drop_caches").toPath(), "3\n".getBytes());
        } catch (Exception e) {
            System.err.println("cannot drop caches: " + e);
        }
    }

    static void recover1() throws Exception {
        MessageStoreConfig c = Stores.config(new File(Bench.o("store", "")), Stores.props());
        long t0 = System.nanoTime();
        DefaultMessageStore x = Stores.create(c);
        if (!x.load()) throw new IllegalStateException("load");
        double l = (System.nanoTime() - t0) / 1e6;
        x.start();
        while (x.dispatchBehindBytes() > 0) Thread.sleep(1);
        double a = (System.nanoTime() - t0) / 1e6;
        x.shutdown();
        Bench.json.println(l + " " + a);
    }

    static void recover() throws Exception {
        int body = Bench.oi("body", 1024), reps = Bench.oi("reps", 3);
        long want = Bench.oi("mib", 1024) * (1L << 20);
        BenchLoad.prepare(body, true);
        File d = new File(Bench.o("dir", "/var/tmp/rmqbench"), "rec");
        Stores.deleteTree(d);
        long n = 0;
        DefaultMessageStore s = BenchLoad.open(d, "async", Map.of());
        for (long i = 0, b = 0; b < want; i++) {
            PutMessageResult r = s.putMessage(BenchLoad.msg(i, "BenchTopic0", 4, true));
            if (r.isOk()) { b += r.getAppendMessageResult().getWroteBytes(); n++; } else { Thread.sleep(5); i--; }
        }
        Stores.settle(s);
        s.shutdown();
        new ProcessBuilder("sync").start().waitFor(); // no write-back during the measured starts
        for (String kind : new String[] {"clean", "abort", "abort_cq_lost", "clean_cq_lost"}) {
            for (String cache : new String[] {"warm", "cold"}) {
                double[] a = new double[reps], l = new double[reps];
                for (int r = 0; r < reps; r++) {
                    if (kind.startsWith("abort")) new File(d, "abort").createNewFile();
                    if (!kind.equals("clean")) new File(d, "checkpoint").delete(); // so that it recovers from the first file
                    if (kind.endsWith("cq_lost")) {
                        Stores.deleteTree(new File(d, "consumequeue"));
                        Stores.deleteTree(new File(d, "index"));
                    }
                    if (cache.equals("cold")) dropCaches();
                    else new ProcessBuilder("sync").start().waitFor();
                    // each start is a process of its own: as a broker starts, and no mapping keeps the files in the cache
                    String exe = ProcessHandle.current().info().command().orElse("java");
                    List<String> cmd = new ArrayList<>(List.of(exe, "-Xmx2g"));
                    for (String x : java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()) {
                        if (x.startsWith("--add-opens") || x.startsWith("-Duser.home")) cmd.add(x);
                    }
                    cmd.addAll(List.of("-cp", System.getProperty("java.class.path"), "Bench", "recover1", "store=" + d));
                    Process pr = new ProcessBuilder(cmd).redirectError(ProcessBuilder.Redirect.DISCARD).start();
                    String[] t = new String(pr.getInputStream().readAllBytes()).trim().split(" ");
                    if (pr.waitFor() != 0) throw new IllegalStateException("recover1 failed");
                    l[r] = Double.parseDouble(t[0]);
                    a[r] = Double.parseDouble(t[1]);
                }
                Map<String, double[]> m = new LinkedHashMap<>();
                m.put("load_ms", l); m.put("ready_ms", a);
                double gib = want / (double) (1 << 30);
                Bench.summary(new Json().put("bench", "recover").put("summary", true).put("version", Bench.version())
                    .put("kind", kind).put("cache", cache).put("body", body).put("messages", n).put("GiB", gib)
                    .put("ready_ms_per_GiB", Bench.med(a) / gib).put("reps", reps), m);
            }
        }
        Stores.deleteTree(d);
    }
}

import java.io.File;
import java.io.PrintStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.DocumentContext;

/**
 * One appender of Chronicle Queue, in-process: bodies of noise, nothing synced while they are appended; then all is.
 *   ChronicleBench dir=DIR body=100 seconds=2.5 warmup=2.5 settle=4 capMiB=1400 pretouch=MiB
 * Rate without a timer around the calls, then the same again with each call timed; each on a queue of its own. One JSON line.
 */
public final class ChronicleBench {
    static final Map<String, String> opt = new HashMap<>();

    static double number(String k, double d) { return Double.parseDouble(opt.getOrDefault(k, "" + d)); }

    static final class Run { double secs, drainMs; long msgs; Hist h = new Hist(); BenchWatch watch; }

    static Run drive(File dir, byte[][] bodies, double seconds, long most, boolean timed, int pretouch) throws Exception {
        deleteTree(dir);
        Run run = new Run();
        try (SingleChronicleQueue queue = SingleChronicleQueueBuilder.binary(dir).build();
             ExcerptAppender appender = queue.createAppender()) {
            append(appender, bodies[0]);
            pretouch(new File(dir.getParentFile(), "touch"), pretouch);
            System.gc();
            run.watch = new BenchWatch();
            long start = System.nanoTime(), deadline = start + (long) (seconds * 1e9), now = start;
            while (run.msgs < most && now < deadline) {
                if (timed) {
                    for (int i = 0; i < 64; i++) {
                        long t0 = System.nanoTime();
                        append(appender, bodies[i]);
                        run.h.add(System.nanoTime() - t0);
                    }
                } else {
                    for (int i = 0; i < 64; i++) append(appender, bodies[i]);
                }
                run.msgs += 64;
                now = System.nanoTime();
            }
            run.secs = (now - start) / 1e9;
            force(dir);
            run.watch.stop();
            run.drainMs = (System.nanoTime() - now) / 1e6;
        }
        deleteTree(dir);
        return run;
    }

    /** All files of the queue are on the device: its own sync() is asked of the current file's map, and tells no error. */
    static void force(File dir) throws Exception {
        File[] inside = dir.listFiles();
        if (inside == null) throw new IllegalStateException(dir + " cannot be listed");
        for (File f : inside) {
            if (f.isDirectory()) { force(f); continue; }
            try (FileChannel channel = FileChannel.open(f.toPath(), StandardOpenOption.WRITE)) {
                channel.force(true);
            }
        }
    }

    static void settle(double seconds) throws Exception {
        if (seconds <= 0) return;
        System.gc();
        new ProcessBuilder("sync").start().waitFor();
        Thread.sleep((long) (seconds * 1000));
    }

    static void append(ExcerptAppender appender, byte[] body) {
        try (DocumentContext document = appender.writingDocument()) {
            document.wire().bytes().write(body);
        }
    }

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

    static void deleteTree(File f) {
        File[] inside = f.listFiles();
        if (inside != null) for (File x : inside) deleteTree(x);
        f.delete();
    }

    public static void main(String[] a) throws Exception {
        PrintStream json = System.out;
        System.setOut(System.err);
        for (String s : a) opt.put(s.substring(0, s.indexOf('=')), s.substring(s.indexOf('=') + 1));
        File base = new File(opt.get("dir"));
        int body = (int) number("body", 100), touch = (int) number("pretouch", 0);
        double seconds = number("seconds", 2.5);
        long most = (long) (number("capMiB", 1400) * (1 << 20) / Math.max(body, 64));
        Random random = new Random(42);
        byte[][] bodies = new byte[64][body];
        for (byte[] b : bodies) random.nextBytes(b);
        drive(new File(base, "warm"), bodies, number("warmup", 2.5) / 2, most / 4, false, 0);
        drive(new File(base, "warm"), bodies, number("warmup", 2.5) / 2, most / 4, true, 0);
        double settle = number("settle", 4);
        settle(settle);
        Run plain = drive(new File(base, "plain"), bodies, seconds, most, false, touch);
        settle(settle);
        Run timed = drive(new File(base, "timed"), bodies, seconds, most, true, touch);
        Json j = new Json().put("bench", "chronicle").put("body", body).put("msgs", plain.msgs).put("secs", plain.secs)
            .put("msgs_per_s", plain.msgs / plain.secs).put("sustained_per_s", plain.msgs / (plain.secs + plain.drainMs / 1e3))
            .put("drain_ms", plain.drainMs).put("p50_us", timed.h.us(.5)).put("p99_us", timed.h.us(.99))
            .put("p999_us", timed.h.us(.999)).put("max_us", timed.h.max / 1000.0);
        json.println(plain.watch.into(j, plain.msgs, 0).raw("counts", timed.h.counts()));
        json.flush();
        Runtime.getRuntime().halt(0);
    }
}

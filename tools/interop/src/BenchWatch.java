import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** What a measured stretch used: CPU time of all threads of this process, and how much of all CPUs others had meanwhile. */
final class BenchWatch {
    private static final double TICKS = 100; // of /proc/stat in a second: USER_HZ, the same on every Linux of today
    private final long begun = System.nanoTime(), own = cpu();
    private final double busy = busy();
    double secs, ownSecs, foreign; // after stop()

    BenchWatch() throws IOException {
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** Seconds of CPU used by everybody since boot, interrupts and the host's share included, idle and iowait not. */
    private static double busy() throws IOException {
        String[] fields = Files.readAllLines(Path.of("/proc/stat")).get(0).trim().split(" +");
        double sum = 0;
        for (int i = 1; i <= 8; i++) if (i != 4 && i != 5) sum += Double.parseDouble(fields[i]);
        return sum / TICKS;
    }

    BenchWatch stop() throws IOException {
        secs = (System.nanoTime() - begun) / 1e9;
        ownSecs = (cpu() - own) / 1e9;
        foreign = Math.max(0, busy() - busy - ownSecs) / (secs * Runtime.getRuntime().availableProcessors());
        return this;
    }

    /** spun: nanoseconds that producers only waited for a due time, with a busy core; they are no work of the store. */
    Json into(Json j, long msgs, long spun) {
        j.put("cpu_secs", ownSecs).put("foreign", foreign);
        return msgs == 0 ? j : j.put("cpu_ns_per_msg", (ownSecs * 1e9 - spun) / msgs);
    }
}

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * One side of a pair of real stores, in-process, for measurements beside this library's (bench/load/replica.py has the same
 * commands):
 *   Replica master|slave DIR HA_PORT [name=value ...]      any MessageStoreConfig property
 * Commands on standard input, a line each, an answer of JSON for each:
 *   connected              until a slave is connected
 *   fill MIB               so many messages of 1 KiB, flushed and dispatched: {"end":OFFSET}
 *   window W SECONDS       asyncPutMessage with W under way: {"per_s":...,"p50_us":...,"p99_us":...,"bad":...,"end":OFFSET}
 *   follow HOST:PORT       a slave begins
 *   reached OFFSET         until the log of a slave is so long
 *   dispatched             until its queues are complete
 */
public final class Replica {
    private static final int BODY = 1024;

    private static BenchLoad.Plan plan(int window, double seconds, long cap, boolean timed) {
        BenchLoad.Plan plan = new BenchLoad.Plan();
        plan.window = window;
        return plan.with(seconds, cap, 0, timed);
    }

    private static Json answer(DefaultMessageStore s, String[] words) throws Exception {
        switch (words[0]) {
            case "connected":
                while (s.getHaService().getConnectionCount().get() == 0) Thread.sleep(1);
                return new Json();
            case "fill": {
                BenchLoad.Run run = BenchLoad.drive(s, plan(1, 1e6, Long.parseLong(words[1]) << 20, false));
                BenchLoad.drain(s, run.end);
                return new Json().put("end", run.end);
            }
            case "window": {
                BenchLoad.Run run = BenchLoad.drive(s, plan(Integer.parseInt(words[1]), Double.parseDouble(words[2]),
                    Long.MAX_VALUE, true));
                return new Json().put("per_s", run.msgs / run.secs).put("p50_us", run.h.us(.5)).put("p99_us", run.h.us(.99))
                    .put("bad", run.fails).put("mib", run.bytes / (double) (1 << 20)).put("end", run.end);
            }
            case "follow":
                s.updateHaMasterAddress(words[1]);
                return new Json();
            case "reached":
                while (s.getMaxPhyOffset() < Long.parseLong(words[1])) Thread.sleep(1);
                return new Json();
            case "dispatched":
                while (s.dispatchBehindBytes() > 0) Thread.sleep(1);
                return new Json();
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // whatever the store prints must not mix with the answers
        Map<String, String> more = new HashMap<>();
        more.put("brokerRole", args[0].equals("slave") ? "SLAVE" : "ASYNC_MASTER");
        more.put("haListenPort", args[2]);
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            more.put(pair[0], pair[1]);
        }
        BenchLoad.prepare(BODY, false);
        DefaultMessageStore s = BenchLoad.open(new File(args[1]), "async", more);
        out.println(new Json().put("ready", true));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; out.flush()) {
            out.println(answer(s, line.split(" ")));
        }
        Runtime.getRuntime().halt(0); // its directory is thrown away
    }
}

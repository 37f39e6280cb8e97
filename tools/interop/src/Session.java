import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.RandomAccessFile;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * One JVM for many questions: reads commands from standard input, one a line, fields separated by tabs, and answers each
 * with one JSON line, {"ok":true,...} or {"ok":false,"error":"..."}. name=value are MessageStoreConfig properties.
 *
 *   verify  DIR OUT TMP [name=value ...]          what Verify does: reads a copy (made under TMP) of DIR, writes OUT;
 *                                                 @DIR@ in a value is the place of the copy
 *   open    DIR [name=value ...]                  opens DIR itself as a master and keeps it open
 *   append  DIR OUT COUNT SEED                    puts messages into the open store DIR (see Append), writes OUT, settles
 *   light   DIR TOPIC COUNT LIST ...              puts messages that are in the light queues of these lists, by turns
 *   read    DIR TOPIC                             "messages": what queue 0 of the topic has, see Light
 *   topic   TOPIC                                 stores that are opened from now on have this compaction topic (5.x)
 *   keyed   DIR TOPIC FIRST COUNT KEYS            puts messages of a compaction topic, see Compacted
 *   batch-topic  TOPIC                            stores that are opened from now on have this topic with batch queues (5.x)
 *   batches DIR TOPIC WHO COUNT MOST              puts inner batches, see Batches
 *   batch-status DIR TOPIC KIND                   "status": of the put of one message, see Batches
 *   unwrap  DIR TOPIC QUEUE                       "messages": what the batches of a queue have, as a client sees it
 *   batch-gets  DIR TOPIC QUEUE OFFSET,MAX ...    "found": bounds of a batch queue and what gets return, see Batches
 *   batch-times DIR TOPIC QUEUE MS ...            "found": queue offsets by store time
 *   follow  DIR ADDRESS                           the slave DIR (opened with brokerRole=SLAVE) follows this master
 *   end     DIR                                   "end": of the log; "behind": bytes that are not dispatched
 *   compact DIR                                   compacts every queue that has a compaction log
 *   newest  DIR TOPIC                             "messages": what queue 0 of a compaction topic has
 *   close   DIR                                   shuts the open store DIR down, as a broker does when it stops
 *   lock    DIR                                   "locked" tells whether another process holds the lock of DIR
 *
 * End of input, or the command quit, halts the process without shutting anything down.
 */
public final class Session {
    private final Map<String, DefaultMessageStore> open = new HashMap<>();

    public static void main(String[] a) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever the store prints must not mix with the answers
        Session session = new Session();
        answers.println(new Json().put("ok", true).put("ready", true));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null && !line.equals("quit");) {
            Json answer = new Json();
            long start = System.nanoTime();
            try {
                session.command(line.split("\t"), answer.put("ok", true));
            } catch (Throwable e) {
                e.printStackTrace();
                answer = new Json().put("ok", false).put("error", e.toString());
            }
            answers.println(answer.put("ms", (System.nanoTime() - start) / 1_000_000));
        }
        Runtime.getRuntime().halt(0);
    }

    private static TreeMap<String, String> props(String[] f, int from) {
        TreeMap<String, String> p = Stores.props();
        for (int i = from; i < f.length; i++) {
            int k = f[i].indexOf('=');
            p.put(f[i].substring(0, k), f[i].substring(k + 1));
        }
        return p;
    }

    private DefaultMessageStore held(String dir) {
        DefaultMessageStore s = open.get(dir);
        if (s == null) {
            throw new IllegalArgumentException(dir + " is not open here");
        }
        return s;
    }

    private void command(String[] f, Json answer) throws Exception {
        switch (f[0]) {
            case "verify":
                verify(new File(f[1]), f[2], new File(f[3]), props(f, 4), answer);
                break;
            case "open": {
                DefaultMessageStore s = Stores.create(Stores.config(new File(f[1]), props(f, 2)));
                answer.put("load", s.load());
                s.start();
                Stores.settle(s);
                open.put(f[1], s);
                break;
            }
            case "append":
                try (PrintWriter w = StoreDump.writer(new FileOutputStream(f[2]))) {
                    Append.run(held(f[1]), Integer.parseInt(f[3]), Long.parseLong(f[4]), w);
                }
                Stores.settle(held(f[1]));
                break;
            case "light":
                Light.put(held(f[1]), f[2], Integer.parseInt(f[3]), java.util.Arrays.copyOfRange(f, 4, f.length));
                Stores.settle(held(f[1]));
                break;
            case "read":
                answer.put("messages", Light.get(held(f[1]), f[2]));
                break;
            case "topic":
                Compacted.know(f[1]);
                break;
            case "keyed":
                Compacted.put(held(f[1]), f[2], Integer.parseInt(f[3]), Integer.parseInt(f[4]), Integer.parseInt(f[5]));
                Stores.settle(held(f[1]));
                break;
            case "batch-topic":
                Batches.know(f[1]);
                break;
            case "batches":
                Batches.put(held(f[1]), f[2], f[3], Integer.parseInt(f[4]), Integer.parseInt(f[5]));
                Stores.settle(held(f[1]));
                break;
            case "batch-status":
                answer.put("status", Batches.status(held(f[1]), f[2], f[3]));
                break;
            case "unwrap":
                answer.put("messages", Batches.get(held(f[1]), f[2], Integer.parseInt(f[3])));
                break;
            case "batch-gets":
                answer.put("found", Batches.ask(held(f[1]), f[2], Integer.parseInt(f[3]),
                    java.util.Arrays.copyOfRange(f, 4, f.length)));
                break;
            case "batch-times":
                answer.put("found", Batches.times(held(f[1]), f[2], Integer.parseInt(f[3]),
                    java.util.Arrays.copyOfRange(f, 4, f.length)));
                break;
            case "follow":
                held(f[1]).updateHaMasterAddress(f[2]);
                break;
            case "end":
                answer.put("end", held(f[1]).getMaxPhyOffset()).put("behind", held(f[1]).dispatchBehindBytes());
                break;
            case "compact":
                Compacted.compact(held(f[1]));
                break;
            case "newest":
                answer.put("messages", Compacted.get(held(f[1]), f[2]));
                break;
            case "close":
                held(f[1]).shutdown();
                open.remove(f[1]);
                break;
            case "lock":
                answer.put("locked", locked(new File(f[1])));
                break;
            default:
                throw new IllegalArgumentException("unknown command " + f[0]);
        }
    }

    private void verify(File dir, String out, File tmp, TreeMap<String, String> props, Json answer) throws Exception {
        if (!new File(dir, "commitlog").isDirectory()) {
            throw new IllegalArgumentException(dir + " has no commitlog directory"); // else: a new, empty store
        }
        File copy = Files.createTempDirectory(tmp.toPath(), "verify").toFile();
        File root = new File(copy, "store");
        Stores.copyTree(dir, root);
        props.replaceAll((name, value) -> value.replace("@DIR@", root.getPath()));
        DefaultMessageStore s = StoreDump.open(root, props);
        try (PrintWriter w = StoreDump.writer(new FileOutputStream(out))) {
            answer.put("rc", StoreDump.print(s, w)).put("messages", s == null ? -1 : StoreDump.lastMessages);
        }
        // A shutdown sleeps for seconds: nobody waits for it, the copy is thrown away.
        Thread t = new Thread(() -> {
            if (s != null) {
                s.shutdown();
            }
            Stores.deleteTree(copy);
        });
        t.setDaemon(true);
        t.start();
    }

    /** Whether another process holds the lock; then the real store's start() must refuse as well. */
    private boolean locked(File dir) throws Exception {
        if (open.containsKey(dir.getPath())) {
            throw new IllegalArgumentException(dir + " is open here: closing a second descriptor would drop its lock");
        }
        try (RandomAccessFile f = new RandomAccessFile(new File(dir, "lock"), "rw");
             FileLock l = f.getChannel().tryLock(0, 1, false)) {
            if (l != null) {
                return false;
            }
        }
        try {
            // Without load(), which a broker calls first and which would already work on files that are not its own.
            Stores.create(Stores.config(dir, Stores.props())).start();
        } catch (RuntimeException e) {
            if (("" + e.getMessage()).contains("Lock failed")) {
                return true;
            }
            throw e;
        }
        throw new IllegalStateException("the lock is held, and the store started all the same");
    }
}

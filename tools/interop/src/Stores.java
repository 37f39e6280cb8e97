import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Opens the real store; hides the differences between RocketMQ 4.9.x and 5.x. */
final class Stores {
    /** What a broker would know of its topics (5.x); for stores that are created from now on. */
    static ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();

    private Stores() {
    }

    /** Sets one MessageStoreConfig property by its setter name, from text. */
    static void set(MessageStoreConfig c, String name, String value, boolean mustExist) {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method m : MessageStoreConfig.class.getMethods()) {
            if (!m.getName().equals(setter) || m.getParameterCount() != 1) {
                continue;
            }
            Class<?> t = m.getParameterTypes()[0];
            try {
                if (t == int.class) {
                    m.invoke(c, Integer.parseInt(value));
                } else if (t == long.class) {
                    m.invoke(c, Long.parseLong(value));
                } else if (t == boolean.class) {
                    m.invoke(c, Boolean.parseBoolean(value));
                } else if (t == String.class) {
                    m.invoke(c, value);
                } else {
                    continue; // the setters taking an enum also exist with a String
                }
                return;
            } catch (ReflectiveOperationException e) {
                throw new IllegalArgumentException("cannot set " + name + "=" + value, e);
            }
        }
        if (mustExist) {
            throw new IllegalArgumentException("this RocketMQ version has no store property " + name);
        }
    }

    static MessageStoreConfig config(File root, Map<String, String> props) {
        MessageStoreConfig c = new MessageStoreConfig();
        c.setStorePathRootDir(root.getPath());
        c.setStorePathCommitLog(new File(root, "commitlog").getPath());
        c.setHaListenPort(0); // any free port
        // never delete anything on our own account
        set(c, "fileReservedTime", "1000000", true);
        set(c, "cleanFileForciblyEnable", "false", true);
        set(c, "diskMaxUsedSpaceRatio", "95", true);
        // 5.x extras which have nothing to do with the log, the queues and the index
        set(c, "enableCompaction", "false", false);
        set(c, "timerWheelEnable", "false", false);
        set(c, "mappedFileSwapEnable", "false", false);
        for (Map.Entry<String, String> e : props.entrySet()) {
            set(c, e.getKey(), e.getValue(), true);
        }
        return c;
    }

    static DefaultMessageStore create(MessageStoreConfig c) throws Exception {
        BrokerConfig bc = new BrokerConfig();
        BrokerStatsManager stats = new BrokerStatsManager("golden", true);
        MessageArrivingListener l = null;
        for (Constructor<?> k : DefaultMessageStore.class.getConstructors()) {
            if (k.getParameterCount() == 4) {
                return (DefaultMessageStore) k.newInstance(c, stats, l, bc);
            }
            if (k.getParameterCount() == 5) {
                return (DefaultMessageStore) k.newInstance(c, stats, l, bc, topics);
            }
        }
        throw new IllegalStateException("unknown DefaultMessageStore constructor");
    }

    /** Waits until the consume queues and the index have caught up with the commit log. */
    static void settle(DefaultMessageStore s) throws InterruptedException {
        long t0 = System.currentTimeMillis();
        int quiet = 0;
        while (quiet < 5) {
            quiet = s.dispatchBehindBytes() <= 0 ? quiet + 1 : 0;
            Thread.sleep(20);
            if (System.currentTimeMillis() - t0 > 60_000) {
                throw new IllegalStateException("dispatch did not catch up: " + s.dispatchBehindBytes() + " bytes behind");
            }
        }
        Thread.sleep(100);
    }

    /** Sparse-friendly recursive copy that keeps modification times (4.9.x time search looks at them). */
    static void copyTree(File from, File to) throws IOException {
        if (from.isDirectory()) {
            if (!to.isDirectory() && !to.mkdirs()) {
                throw new IOException("mkdir " + to);
            }
            File[] ls = from.listFiles();
            if (ls != null) {
                for (File f : ls) {
                    copyTree(f, new File(to, f.getName()));
                }
            }
        } else {
            try (RandomAccessFile in = new RandomAccessFile(from, "r");
                 RandomAccessFile out = new RandomAccessFile(to, "rw")) {
                out.setLength(in.length());
                byte[] buf = new byte[1 << 16];
                long pos = 0;
                for (int n; (n = in.read(buf)) > 0; pos += n) {
                    boolean zero = true;
                    for (int i = 0; i < n && zero; i++) {
                        zero = buf[i] == 0;
                    }
                    if (!zero) {
                        out.seek(pos);
                        out.write(buf, 0, n);
                    }
                }
            }
        }
        java.nio.file.Files.setLastModifiedTime(to.toPath(), java.nio.file.Files.getLastModifiedTime(from.toPath()));
    }

    static void deleteTree(File f) {
        File[] ls = f.listFiles();
        if (ls != null) {
            for (File c : ls) {
                deleteTree(c);
            }
        }
        f.delete();
    }

    static TreeMap<String, String> props() {
        return new TreeMap<>();
    }
}

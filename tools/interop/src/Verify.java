import java.io.File;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.util.TreeMap;

/**
 * Verify [--out FILE] [--expect-messages N] [--in-place] [--tmp DIR] STORE_DIR [name=value ...]
 * Opens a copy of STORE_DIR with the real RocketMQ store; name=value are MessageStoreConfig properties.
 * Exit: 0 all read; 2 load() failed; 3 loaded but some entries could not be read, or not N messages; 1 any other error.
 */
public final class Verify {
    public static void main(String[] a) {
        PrintStream stdout = System.out;
        System.setOut(System.err); // whatever the store prints must not mix with the JSON lines
        int rc = 1;
        File tmp = null;
        try {
            String outFile = null;
            String tmpDir = null;
            boolean inPlace = false;
            long expect = -1;
            File dir = null;
            TreeMap<String, String> props = Stores.props();
            for (int i = 0; i < a.length; i++) {
                if (a[i].equals("--out")) {
                    outFile = a[++i];
                } else if (a[i].equals("--tmp")) {
                    tmpDir = a[++i];
                } else if (a[i].equals("--expect-messages")) {
                    expect = Long.parseLong(a[++i]);
                } else if (a[i].equals("--in-place")) {
                    inPlace = true;
                } else if (dir == null) {
                    dir = new File(a[i]);
                } else {
                    int k = a[i].indexOf('=');
                    if (k < 0) {
                        throw new IllegalArgumentException("expected name=value, got " + a[i]);
                    }
                    props.put(a[i].substring(0, k), a[i].substring(k + 1));
                }
            }
            if (dir == null || !dir.isDirectory()) {
                throw new IllegalArgumentException(
                    "usage: Verify [--out FILE] [--in-place] STORE_DIR [name=value ...]; no directory " + dir);
            }
            if (!new File(dir, "commitlog").isDirectory()) {
                // the real store would take this for a new, empty store
                throw new IllegalArgumentException(dir + " has no commitlog directory");
            }
            File root = dir;
            if (!inPlace) {
                tmp = (tmpDir == null ? Files.createTempDirectory("rmqverify")
                    : Files.createTempDirectory(new File(tmpDir).toPath(), "rmqverify")).toFile();
                root = new File(tmp, "store");
                Stores.copyTree(dir, root);
            }
            try (PrintWriter w = StoreDump.writer(outFile == null ? stdout : new FileOutputStream(outFile))) {
                rc = StoreDump.print(StoreDump.open(root, props), w); // never shut down: this process halts
            }
            if (rc == 0 && expect >= 0 && StoreDump.lastMessages != expect) {
                System.err.println("expected " + expect + " messages in the queues, the real store has "
                    + StoreDump.lastMessages);
                rc = 3;
            }
        } catch (Throwable e) {
            e.printStackTrace();
            rc = 1;
        }
        if (tmp != null) {
            Stores.deleteTree(tmp);
        }
        System.err.flush();
        stdout.flush();
        Runtime.getRuntime().halt(rc);
    }
}

import java.io.File;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.timer.TimerMessageStore;

/**
 * The real 5.3.3 broker's timer messages over a store directory, without a network: its controller, its hooks, its timer store.
 *
 *   DIR STEP ... -- [name=value ...]      STEP: put:NAME:MS    a message NAME for topic T, due at MS
 *                                               recall:NAME:MS takes NAME, due at MS, back
 *                                               wait:N         until topic T has N messages, at most 20 s
 *                                               taken:N        until the timer has N entries of its queue, at most 20 s
 *                                               halt           ends as a killed broker does
 *
 * One JSON line: "visible" has the bodies of topic T in their order, "offset" the timer's next queue offset, "pending" what its
 * wheel counts, "topics" what timermetrics counts for T when the store was loaded.
 */
public final class Timers {
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final BrokerController broker;
    private final MessageStore store;
    private final TimerMessageStore timer;
    private final long counted;

    public static void main(String[] a) {
        try {
            run(a);
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // the broker's threads would live on
        }
    }

    private static void run(String[] a) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever the broker prints must not mix with the answer
        TreeMap<String, String> props = Stores.props();
        int steps = 1;
        while (steps < a.length && !a[steps].equals("--")) {
            steps++;
        }
        for (int i = steps + 1; i < a.length; i++) {
            int k = a[i].indexOf('=');
            props.put(a[i].substring(0, k), a[i].substring(k + 1));
        }
        props.put("timerWheelEnable", "true");
        Timers t = new Timers(new File(a[0]), props);
        boolean halt = false;
        for (int i = 1; i < steps; i++) {
            halt |= a[i].equals("halt");
            t.step(a[i].split(":"));
        }
        answers.println(new Json().put("visible", t.visible()).put("offset", t.timer.getCommitQueueOffset())
            .put("pending", t.timer.getAllCongestNum()).put("topics", t.counted));
        answers.flush();
        if (!halt) {
            t.timer.shutdown();
            t.store.shutdown();
        }
        Runtime.getRuntime().halt(0);
    }

    private Timers(File dir, Map<String, String> props) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setRocketmqHome(dir.getPath());
        broker = new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), Stores.config(dir, props));
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not load the store");
        }
        store = broker.getMessageStore();
        timer = broker.getTimerMessageStore();
        counted = timer.getTimerMetrics().getTimingCount("T");
        store.start();
        timer.start(true);
        Stores.settle((DefaultMessageStore) store);
    }

    private void step(String[] s) throws Exception {
        switch (s[0]) {
            case "put":
                put(s[1], s[2], null);
                break;
            case "recall":
                put(s[1], s[2], TimerMessageStore.buildDeleteKey("T", s[1]));
                break;
            case "wait":
                until(() -> visible().isEmpty() ? 0 : visible().split(" ").length, Integer.parseInt(s[1]));
                break;
            case "taken":
                until(timer::getCommitQueueOffset, Integer.parseInt(s[1]));
                break;
            default:
        }
    }

    private interface Count {
        long now();
    }

    private static void until(Count count, long wanted) throws InterruptedException {
        long deadline = System.currentTimeMillis() + 20_000;
        while (count.now() < wanted) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("it has " + count.now() + ", not " + wanted);
            }
            Thread.sleep(20);
        }
    }

    private void put(String name, String due, String deleted) {
        Map<String, String> p = new LinkedHashMap<>();
        p.put("UNIQ_KEY", name);
        p.put("TIMER_DELIVER_MS", due);
        if (deleted != null) {
            p.put("TIMER_DEL_UNIQKEY", deleted);
        }
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        m.setTopic("T");
        m.setQueueId(0);
        m.setBody(name.getBytes());
        MessageAccessor.setProperties(m, p);
        m.setPropertiesString(MessageDecoder.messageProperties2String(p));
        m.setBornTimestamp(System.currentTimeMillis());
        m.setBornHost(HOST);
        m.setStoreHost(HOST);
        PutMessageResult r = store.putMessage(m);
        if (!r.isOk()) {
            throw new IllegalStateException(name + ": " + r.getPutMessageStatus());
        }
    }

    private String visible() {
        StringJoiner found = new StringJoiner(" ");
        GetMessageResult r = store.getMessage("readers", "T", 0, Math.max(0, store.getMinOffsetInQueue("T", 0)), 32, null);
        if (r != null) {
            for (ByteBuffer b : r.getMessageBufferList()) {
                MessageExt m = MessageDecoder.decode(b, true, false);
                found.add(new String(m.getBody()));
            }
            r.release();
        }
        return found.toString();
    }
}

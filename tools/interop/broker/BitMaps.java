import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.*; // the versions keep their message classes in different packages
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.*;

/**
 * The real broker's bit maps of SQL92 filters over a store directory, without a network: its controller with its filter manager and
 * its dispatcher of bit maps. One JSON line says what it did.
 *
 *   write DIR [name=value ...]   registers filters over topic T, and puts 100 messages meanwhile, as `expressions` says
 *   put   DIR [name=value ...]   puts 20 messages more
 *   read  DIR [name=value ...]   puts nothing
 *
 * All say in "entries" the store time and the bit map of each entry, and of each registered group in "matched" which queue offsets
 * its filter returns, and in "skipped" those that its bit map leaves out. They close the store as a broker that stops does.
 */
public final class BitMaps {
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final BrokerController broker;
    private final DefaultMessageStore store;
    private final ConsumerFilterManager filters;
    private int next;

    public static void main(String[] a) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever the broker prints must not mix with the answer
        TreeMap<String, String> props = Stores.props();
        for (int i = 2; i < a.length; i++) {
            int k = a[i].indexOf('=');
            props.put(a[i].substring(0, k), a[i].substring(k + 1));
        }
        BitMaps b = new BitMaps(new File(a[1]), props);
        if (a[0].equals("write")) {
            b.write();
        } else if (a[0].equals("put")) {
            b.put(20);
        }
        answers.println(b.said());
        answers.flush();
        b.close();
        Runtime.getRuntime().halt(0);
    }

    private BitMaps(File dir, Map<String, String> props) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setRocketmqHome(dir.getPath());
        config.setEnableCalcFilterBitMap(true);
        config.setEnablePropertyFilter(true);
        broker = new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), Stores.config(dir, props));
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not load the store");
        }
        store = (DefaultMessageStore) broker.getMessageStore();
        store.start();
        filters = broker.getConsumerFilterManager();
        Stores.settle(store);
        next = (int) store.getMaxOffsetInQueue("T", 0);
    }

    private void register(String group, String sql, long version) throws Exception {
        if (!filters.register("T", group, sql, "SQL92", version)) {
            throw new IllegalStateException(group + " is not registered");
        }
        Thread.sleep(20); // a bit map counts for messages of a later millisecond
    }

    private void put(int count) throws Exception {
        for (int i = 0; i < count; i++, next++) {
            Map<String, String> p = new LinkedHashMap<>();
            p.put("TAGS", next % 2 == 0 ? "even" : "odd");
            p.put("price", Integer.toString(next % 10));
            p.put("at", next % 7 == 0 ? "seven" : Integer.toString(next));
            p.put("WAIT", "true");
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic("T");
            m.setQueueId(0);
            m.setBody(("m" + next).getBytes());
            MessageAccessor.setProperties(m, p);
            m.setPropertiesString(MessageDecoder.messageProperties2String(p));
            m.setTagsCode(p.get("TAGS").hashCode());
            m.setBornTimestamp(System.currentTimeMillis());
            m.setBornHost(HOST);
            m.setStoreHost(HOST);
            if (!store.putMessage(m).isOk()) {
                throw new IllegalStateException("not put: " + next);
            }
        }
        Stores.settle(store);
    }

    private void write() throws Exception {
        put(10);
        register("cheap", "price BETWEEN 3 AND 5", 1);
        register("even", "TAGS = 'even'", 1);
        put(40);
        register("late", "at > 20", 1);
        put(30);
        register("cheap", "price > 7", 2);
        put(20);
        filters.unRegister("even");
    }

    private ExpressionMessageFilter filter(ConsumerFilterData data) throws Exception {
        Constructor<?> made = ExpressionMessageFilter.class.getConstructors()[0];
        Class<?> type = made.getParameterTypes()[0];
        Object subscription = type.getConstructor().newInstance();
        type.getMethod("setTopic", String.class).invoke(subscription, "T");
        type.getMethod("setSubString", String.class).invoke(subscription, data.getExpression());
        type.getMethod("setExpressionType", String.class).invoke(subscription, "SQL92");
        return (ExpressionMessageFilter) made.newInstance(subscription, data, filters);
    }

    private String said() throws Exception {
        ConsumeQueue queue = (ConsumeQueue) store.findConsumeQueue("T", 0);
        TreeMap<String, ExpressionMessageFilter> known = new TreeMap<>();
        TreeMap<String, String> matched = new TreeMap<>();
        TreeMap<String, String> skipped = new TreeMap<>();
        if (filters.get("T") != null) {
            for (ConsumerFilterData data : filters.get("T")) {
                known.put(data.getConsumerGroup(), filter(data));
            }
        }
        StringBuilder entries = new StringBuilder("[");
        for (long o = queue.getMinOffsetInQueue(); o < queue.getMaxOffsetInQueue(); o++) {
            SelectMappedBufferResult found = queue.getIndexBuffer(o);
            long code = found.getByteBuffer().getLong(12);
            found.release();
            ConsumeQueueExt.CqExtUnit unit = new ConsumeQueueExt.CqExtUnit();
            boolean ext = queue.isExtAddr(code) && queue.getExt(code, unit);
            entries.append(o == 0 ? "[" : ",[").append(ext ? unit.getMsgStoreTime() : -1).append(",\"")
                .append(ext ? Json.hex(unit.getFilterBitMap()) : "").append("\"]");
            for (Map.Entry<String, ExpressionMessageFilter> e : known.entrySet()) {
                if (!e.getValue().isMatchedByConsumeQueue(ext ? unit.getTagsCode() : code, ext ? unit : null)) {
                    skipped.merge(e.getKey(), Long.toString(o), (x, y) -> x + " " + y);
                }
            }
        }
        for (Map.Entry<String, ExpressionMessageFilter> e : known.entrySet()) {
            matched.put(e.getKey(), "");
            for (long o = 0; o < queue.getMaxOffsetInQueue();) {
                GetMessageResult r = store.getMessage(e.getKey(), "T", 0, o, 32, e.getValue());
                for (ByteBuffer b : r.getMessageBufferList()) {
                    matched.merge(e.getKey(), Long.toString(MessageDecoder.decode(b, true, false).getQueueOffset()),
                        (x, y) -> (x + " " + y).trim());
                }
                o = r.getNextBeginOffset();
                r.release();
            }
        }
        return new Json().raw("entries", entries + "]").put("matched", matched).put("skipped", skipped).toString();
    }

    private void close() throws Exception {
        filters.persist();
        broker.getTopicConfigManager().persist();
        store.shutdown();
    }
}

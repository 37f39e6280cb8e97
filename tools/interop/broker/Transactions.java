import io.netty.channel.ChannelHandlerContext;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.processor.EndTransactionProcessor;
import org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener;
import org.apache.rocketmq.broker.transaction.TransactionalMessageService;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.*; // the versions keep their message classes in different packages
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.*;

/**
 * The real broker's transactions over a store directory, without a network: its controller, its service of half messages, its
 * processor of decisions. One JSON line says what it did.
 *
 *   write DIR [name=value ...]                   prepares c0 to c3, r0 to r3 and p0 to p3, commits the first, rolls the second
 *                                                back, and checks the third once
 *   take  DIR COMMIT ROLLBACK [name=value ...]   checks: "asked" has the ids; then decides two of them, or "-"
 *
 * Both say in "visible" which bodies the topic T holds, and close the store as a broker that stops does.
 */
public final class Transactions {
    private static final String GROUP = "producers";

    private final BrokerController broker;
    private final MessageStore store;
    private final TransactionalMessageService service;
    private final Map<String, MessageExt> asked = new TreeMap<>();
    private final InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);

    public static void main(String[] a) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever the broker prints must not mix with the answer
        boolean write = a[0].equals("write");
        TreeMap<String, String> props = Stores.props();
        for (int i = write ? 2 : 4; i < a.length; i++) {
            int k = a[i].indexOf('=');
            props.put(a[i].substring(0, k), a[i].substring(k + 1));
        }
        Transactions t = new Transactions(new File(a[1]), props);
        if (write) {
            t.write();
        } else {
            t.take(a[2], a[3]);
        }
        answers.println(new Json().put("asked", String.join(" ", t.asked.keySet())).put("visible", t.visible()));
        answers.flush();
        t.close();
        Runtime.getRuntime().halt(0);
    }

    private Transactions(File dir, Map<String, String> props) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setRocketmqHome(dir.getPath());
        for (Method m : BrokerConfig.class.getMethods()) {
            if (m.getName().equals("setTransactionOpBatchInterval")) {
                m.invoke(config, 100); // of 5.x
            }
        }
        broker = new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), Stores.config(dir, props));
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not load the store");
        }
        store = broker.getMessageStore();
        store.start();
        service = broker.getTransactionalMessageService();
        settle();
    }

    private void settle() throws InterruptedException {
        Stores.settle((DefaultMessageStore) store);
    }

    private long[] prepare(String name, int queue) {
        Map<String, String> p = new LinkedHashMap<>();
        p.put("UNIQ_KEY", name);
        p.put("TRAN_MSG", "true");
        p.put("PGROUP", GROUP);
        p.put("WAIT", "true");
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        m.setTopic("T");
        m.setQueueId(queue);
        m.setBody(name.getBytes());
        MessageAccessor.setProperties(m, p);
        m.setPropertiesString(MessageDecoder.messageProperties2String(p));
        m.setBornTimestamp(System.currentTimeMillis());
        m.setBornHost(host);
        m.setStoreHost(host);
        PutMessageResult r = service.prepareMessage(m);
        if (!r.isOk()) {
            throw new IllegalStateException(name + ": " + r.getPutMessageStatus());
        }
        return new long[] {r.getAppendMessageResult().getWroteOffset(), r.getAppendMessageResult().getLogicsOffset()};
    }

    private void end(String name, long offset, long queueOffset, boolean commit) throws Exception {
        CommandCustomHeader header = header();
        set(header, "ProducerGroup", GROUP);
        set(header, "TranStateTableOffset", queueOffset);
        set(header, "CommitLogOffset", offset);
        set(header, "CommitOrRollback", commit ? 8 : 12);
        set(header, "FromTransactionCheck", false);
        set(header, "MsgId", name);
        set(header, "TransactionId", name);
        set(header, "Topic", "T");
        RemotingCommand request = RemotingCommand.createRequestCommand(37, header);
        request.makeCustomHeaderToNet();
        ChannelHandlerContext nobody = (ChannelHandlerContext) Proxy.newProxyInstance(Transactions.class.getClassLoader(),
            new Class<?>[] {ChannelHandlerContext.class}, (proxy, method, args) -> null);
        RemotingCommand answer = new EndTransactionProcessor(broker).processRequest(nobody, request);
        if (answer == null || answer.getCode() != 0) {
            throw new IllegalStateException(name + ": " + (answer == null ? "no answer" : answer.getRemark()));
        }
    }

    private static CommandCustomHeader header() throws Exception {
        String name = "protocol.header.EndTransactionRequestHeader";
        try {
            return (CommandCustomHeader) Class.forName("org.apache.rocketmq.remoting." + name).getConstructor().newInstance();
        } catch (ClassNotFoundException older) {
            return (CommandCustomHeader) Class.forName("org.apache.rocketmq.common." + name).getConstructor().newInstance();
        }
    }

    private static void set(Object header, String name, Object value) throws Exception {
        for (Method m : header.getClass().getMethods()) {
            if (m.getName().equals("set" + name)) {
                m.invoke(header, value);
            }
        }
    }

    private void check() throws Exception {
        settle();
        AbstractTransactionalMessageCheckListener listener = new AbstractTransactionalMessageCheckListener() {
            @Override
            public void resolveHalfMsg(MessageExt m) {
                asked.put(m.getUserProperty("UNIQ_KEY"), m);
            }

            @Override
            public void resolveDiscardMsg(MessageExt m) {
                throw new IllegalStateException("given up: " + m);
            }
        };
        for (Method m : TransactionalMessageService.class.getMethods()) {
            if (m.getName().equals("check")) {
                if (m.getParameterCount() == 3) {
                    m.invoke(service, 1L, 15, listener);
                } else {
                    m.invoke(service, 1L, 15, 30_000L, listener);
                }
            }
        }
        settle();
    }

    private void write() throws Exception {
        String kinds = "crp";
        for (int i = 0; i < 12; i++) {
            char kind = kinds.charAt(i % 3);
            long[] place = prepare("" + kind + i / 3, i % 2);
            settle();
            if (kind != 'p') {
                end("" + kind + i / 3, place[0], place[1], kind == 'c');
            }
        }
        Thread.sleep(500); // 5.x puts op messages together
        check();
    }

    private void take(String commit, String rollback) throws Exception {
        check();
        for (String name : new String[] {commit, rollback}) {
            if (!name.equals("-")) {
                MessageExt m = asked.get(name);
                end(name, m.getCommitLogOffset(), m.getQueueOffset(), name.equals(commit));
            }
        }
        Thread.sleep(500);
        settle();
    }

    private String visible() {
        TreeMap<String, Integer> found = new TreeMap<>();
        for (int queue = 0; queue < 2; queue++) {
            GetMessageResult r = store.getMessage("readers", "T", queue, store.getMinOffsetInQueue("T", queue), 32, null);
            if (r == null) {
                continue;
            }
            for (ByteBuffer b : r.getMessageBufferList()) {
                found.merge(new String(MessageDecoder.decode(b, true, false).getBody()), 1, Integer::sum);
            }
            r.release();
        }
        if (found.values().stream().anyMatch(n -> n != 1)) {
            throw new IllegalStateException("visible twice: " + found);
        }
        return String.join(" ", found.keySet());
    }

    private void close() throws Exception {
        service.close();
        broker.getConsumerOffsetManager().persist();
        broker.getTopicConfigManager().persist();
        store.shutdown();
    }
}

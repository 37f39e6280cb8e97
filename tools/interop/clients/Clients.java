// Scenarios of real clients against one name server. Each prints a line {"scenario":...,"ok":true|false,"said":"..."}.
//   java Clients HOST:PORT SCENARIO...
// System properties: accessKey and secretKey, with which all requests are signed; warm, how often to ask for a route before the
// scenarios begin, until one comes: the first TLS handshake of a JVM may take longer than a request waits.
// A scenario has topics and groups of its own, so that any number of them runs against one broker, in any order.
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

public class Clients {
    static String names;
    static final int WAIT_S = 40;

    interface Scenario {
        void run() throws Exception;
    }

    static void check(boolean right, Object said) {
        if (!right) {
            throw new AssertionError(String.valueOf(said));
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static RPCHook hook() {
        String key = System.getProperty("accessKey");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, System.getProperty("secretKey")));
    }

    static void warm(int times) throws Exception {
        DefaultMQProducer producer = producer("warm-p");
        for (int i = 0; i < times; i++) {
            try {
                producer.fetchPublishMessageQueues("TBW102");
                break;
            } catch (Exception error) {
                Thread.sleep(100);
            }
        }
        producer.shutdown();
    }

    static DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, hook());
        producer.setNamesrvAddr(names);
        producer.setInstanceName(group);
        producer.setSendMsgTimeout(20000);         // a machine under load
        producer.start();
        return producer;
    }

    static DefaultMQPushConsumer consumer(String group, String instance) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName(group + instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    /** Takes bodies until `latch` is down. */
    static MessageListenerConcurrently taking(Map<String, MessageExt> got, CountDownLatch latch) {
        return (messages, context) -> {
            for (MessageExt message : messages) {
                if (got.put(text(message), message) == null) {
                    latch.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    static void await(CountDownLatch latch, Object said) throws Exception {
        check(latch.await(WAIT_S, TimeUnit.SECONDS), "not in time: " + said);
    }

    static void push() throws Exception {
        DefaultMQProducer producer = producer("push-p");
        for (int i = 0; i < 3; i++) {
            SendResult result = producer.send(new Message("Push", "A", "key" + i, bytes("sync" + i)));
            check(result.getSendStatus() == SendStatus.SEND_OK, result);
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            batch.add(new Message("Push", "B", bytes("batch" + i)));
        }
        check(producer.send(batch).getOffsetMsgId().split(",").length == 4, "ids of the batch");
        CountDownLatch sent = new CountDownLatch(1);
        producer.send(new Message("Push", "A", bytes("async")), new SendCallback() {
            public void onSuccess(SendResult result) {
                sent.countDown();
            }

            public void onException(Throwable error) {
                error.printStackTrace();
            }
        });
        await(sent, "the asynchronous send");
        producer.sendOneway(new Message("Push", "A", bytes("oneway")));
        byte[] large = new byte[20000];
        Arrays.fill(large, (byte) 'x');
        producer.send(new Message("Push", "A", large));
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        CountDownLatch all = new CountDownLatch(10);
        DefaultMQPushConsumer consumer = consumer("push-c", "");
        consumer.subscribe("Push", "*");
        consumer.registerMessageListener(taking(got, all));
        consumer.start();
        await(all, got.keySet());
        check(got.get("batch2").getTags().equals("B") && got.containsKey(new String(large)), got.keySet());
        consumer.shutdown();
        producer.shutdown();
    }

    static void tags() throws Exception {
        DefaultMQProducer producer = producer("tags-p");
        for (String tag : new String[] {"A", "B", "C"}) {
            producer.send(new Message("Tags", tag, bytes(tag)));
        }
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        CountDownLatch all = new CountDownLatch(3);
        DefaultMQPushConsumer consumer = consumer("tags-c", "");
        consumer.subscribe("Tags", "A || C");
        consumer.registerMessageListener(taking(got, all));
        consumer.start();
        while (all.getCount() > 1) {
            Thread.sleep(10);
        }
        producer.send(new Message("Tags", "B", bytes("B2")));       // while the pull is held
        producer.send(new Message("Tags", "C", bytes("C2")));
        await(all, got.keySet());
        check(new TreeMap<>(got).keySet().toString().equals("[A, C, C2]"), got.keySet());
        consumer.shutdown();
        producer.shutdown();
    }

    /** A message fails twice: it comes again, and then lies with the dead letters. */
    static void retry() throws Exception {
        DefaultMQProducer producer = producer("retry-p");
        producer.send(new Message("Retry", "A", bytes("fails")));
        CountDownLatch tries = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = consumer("retry-c", "");
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe("Retry", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            tries.countDown();
            check(messages.get(0).getTopic().equals("Retry"), messages);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        await(tries, "the second delivery");
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        CountDownLatch dead = new CountDownLatch(1);
        DefaultMQPushConsumer other = consumer("retry-dead", "");
        producer.send(new Message("RetryWarm", "A", bytes("x")));
        for (int i = 0; i < 200; i++) {
            try {
                if (!producer.fetchPublishMessageQueues("%DLQ%retry-c").isEmpty()) {
                    break;
                }
            } catch (Exception error) {
                Thread.sleep(100);
            }
        }
        other.subscribe("%DLQ%retry-c", "*");
        other.registerMessageListener(taking(got, dead));
        other.start();
        await(dead, "the dead letter");
        check(got.get("fails").getReconsumeTimes() == 2, got.get("fails"));
        consumer.shutdown();
        other.shutdown();
        producer.shutdown();
    }

    static void delay() throws Exception {
        DefaultMQProducer producer = producer("delay-p");
        producer.send(new Message("Delay", "A", bytes("warm")));
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        CountDownLatch all = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = consumer("delay-c", "");
        consumer.subscribe("Delay", "*");
        consumer.registerMessageListener(taking(got, all));
        consumer.start();
        Message message = new Message("Delay", "A", bytes("late"));
        message.setDelayTimeLevel(1);
        long begun = System.currentTimeMillis();
        producer.send(message);
        await(all, got.keySet());
        check(System.currentTimeMillis() - begun >= 1000, "too early");
        consumer.shutdown();
        producer.shutdown();
    }

    static void orderly() throws Exception {
        DefaultMQProducer producer = producer("orderly-p");
        for (int i = 0; i < 20; i++) {
            producer.send(new Message("Orderly", "A", bytes("o" + i)), new SelectMessageQueueByHash(), i % 2);
        }
        List<String> got = new ArrayList<>();
        CountDownLatch all = new CountDownLatch(20);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String instance : new String[] {"1", "2"}) {
            DefaultMQPushConsumer consumer = consumer("orderly-c", instance);
            consumer.subscribe("Orderly", "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    synchronized (got) {
                        if (!got.contains(text(message))) {
                            got.add(text(message));
                            all.countDown();
                        }
                    }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        await(all, got);
        for (int parity = 0; parity < 2; parity++) {
            int last = -1;
            for (String one : got) {
                int number = Integer.parseInt(one.substring(1));
                if (number % 2 == parity) {
                    check(number > last, got);
                    last = number;
                }
            }
        }
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        producer.shutdown();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void broadcast() throws Exception {
        DefaultMQProducer producer = producer("broadcast-p");
        producer.send(new Message("Broadcast", "A", bytes("warm")));
        CountDownLatch all = new CountDownLatch(2);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String instance : new String[] {"1", "2"}) {
            DefaultMQPushConsumer consumer = consumer("broadcast-c" + System.nanoTime(), instance);
            for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
                if (method.getName().equals("setMessageModel")) {       // its type moved between 4.9 and 5.x
                    method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
                }
            }
            consumer.subscribe("Broadcast", "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    if (text(message).equals("for all")) {
                        all.countDown();
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        Thread.sleep(1000);
        producer.send(new Message("Broadcast", "A", bytes("for all")));
        await(all, "both consumers");
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        producer.shutdown();
    }

    static void transaction() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("tx-p", hook());
        producer.setNamesrvAddr(names);
        producer.setInstanceName("tx-p");
        AtomicInteger checks = new AtomicInteger();
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                check(message.getTopic().equals("Tx") && text(message).equals("asked"), message);
                checks.incrementAndGet();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        CountDownLatch all = new CountDownLatch(2);
        producer.sendMessageInTransaction(new Message("Tx", "A", bytes("kept")), LocalTransactionState.COMMIT_MESSAGE);
        producer.sendMessageInTransaction(new Message("Tx", "A", bytes("dropped")), LocalTransactionState.ROLLBACK_MESSAGE);
        producer.sendMessageInTransaction(new Message("Tx", "A", bytes("asked")), null);     // undecided
        DefaultMQPushConsumer consumer = consumer("tx-c", "");
        consumer.subscribe("Tx", "*");
        consumer.registerMessageListener(taking(got, all));
        consumer.start();
        await(all, got.keySet());
        check(new TreeMap<>(got).keySet().toString().equals("[asked, kept]") && checks.get() > 0, got.keySet());
        consumer.shutdown();
        producer.shutdown();
    }

    static void sql() throws Exception {
        DefaultMQProducer producer = producer("sql-p");
        for (int i = 0; i < 6; i++) {
            Message message = new Message("Sql", "A", bytes("s" + i));
            message.putUserProperty("n", String.valueOf(i));
            producer.send(message);
        }
        Map<String, MessageExt> got = new ConcurrentHashMap<>();
        CountDownLatch all = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = consumer("sql-c", "");
        consumer.subscribe("Sql", MessageSelector.bySql("n > 1 AND n < 4"));
        consumer.registerMessageListener(taking(got, all));
        consumer.start();
        await(all, got.keySet());
        check(new TreeMap<>(got).keySet().toString().equals("[s2, s3]"), got.keySet());
        consumer.shutdown();
        producer.shutdown();
    }

    static void query() throws Exception {
        DefaultMQProducer producer = producer("query-p");
        long begun = System.currentTimeMillis();
        SendResult sent = producer.send(new Message("Query", "A", "order-7", bytes("found")));
        QueryResult result = null;
        for (int i = 0; i < 100 && result == null; i++) {
            try {
                result = producer.queryMessage("Query", "order-7", 32, 0, System.currentTimeMillis() + 1000);
            } catch (Exception error) {
                Thread.sleep(50);
            }
        }
        check(result != null && text(result.getMessageList().get(0)).equals("found"), result);
        check(text(producer.viewMessage("Query", sent.getOffsetMsgId())).equals("found"), sent);
        check(text(producer.viewMessage("Query", sent.getMsgId())).equals("found"), sent);
        check(producer.maxOffset(sent.getMessageQueue()) == 1 && producer.minOffset(sent.getMessageQueue()) == 0, sent);
        check(producer.searchOffset(sent.getMessageQueue(), begun - 1000) == 0, sent);
        check(producer.earliestMsgStoreTime(sent.getMessageQueue()) >= begun - 1000, sent);
        producer.shutdown();
    }

    static void lite() throws Exception {
        DefaultMQProducer producer = producer("lite-p");
        for (int i = 0; i < 10; i++) {
            producer.send(new Message("Lite", "A", bytes("l" + i)));
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("lite-c", hook());
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("lite-c");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Lite", "*");
        consumer.start();
        Map<String, MessageExt> got = new TreeMap<>();
        long end = System.currentTimeMillis() + WAIT_S * 1000;
        while (got.size() < 10 && System.currentTimeMillis() < end) {
            for (MessageExt message : consumer.poll(500)) {
                got.put(text(message), message);
            }
        }
        check(got.size() == 10, got.keySet());
        consumer.commitSync();
        consumer.shutdown();
        producer.shutdown();
    }

    static void request() throws Exception {
        DefaultMQProducer asker = producer("request-p");
        DefaultMQProducer answerer = producer("request-a");
        asker.send(new Message("Request", "warm", bytes("warm")));
        CountDownLatch warm = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = consumer("request-c", "");
        consumer.subscribe("Request", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (text(message).equals("warm")) {
                    warm.countDown();
                    continue;
                }
                try {
                    answerer.send(MessageUtil.createReplyMessage(message, bytes("answer to " + text(message))));
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        await(warm, "the consumer");
        Thread.sleep(2000);         // the first heartbeat, by which the broker knows the asker, comes a second after the start
        CountDownLatch done = new CountDownLatch(1);
        List<String> got = new ArrayList<>();
        asker.request(new Message("Request", "A", bytes("question")), new RequestCallback() {
            public void onSuccess(Message message) {
                got.add(text(message));
                done.countDown();
            }

            public void onException(Throwable error) {
                got.add(error.toString());
                done.countDown();
            }
        }, 20000);
        await(done, "the answer");
        check(got.toString().equals("[answer to question]"), got);
        consumer.shutdown();
        asker.shutdown();
        answerer.shutdown();
    }

    public static void main(String[] arguments) throws Exception {
        names = arguments[0];
        if (Integer.getInteger("warm", 0) > 0) warm(Integer.getInteger("warm"));
        Map<String, Scenario> scenarios = new TreeMap<>();
        scenarios.put("push", Clients::push);
        scenarios.put("tags", Clients::tags);
        scenarios.put("retry", Clients::retry);
        scenarios.put("delay", Clients::delay);
        scenarios.put("orderly", Clients::orderly);
        scenarios.put("broadcast", Clients::broadcast);
        scenarios.put("transaction", Clients::transaction);
        scenarios.put("sql", Clients::sql);
        scenarios.put("query", Clients::query);
        scenarios.put("lite", Clients::lite);
        scenarios.put("request", Clients::request);
        for (String name : arguments.length > 1 ? Arrays.copyOfRange(arguments, 1, arguments.length)
                : scenarios.keySet().toArray(new String[0])) {
            String said = "";
            long begun = System.currentTimeMillis();
            try {
                scenarios.get(name).run();
            } catch (Throwable error) {
                said = error.toString();
                error.printStackTrace();
            }
            long took = System.currentTimeMillis() - begun;
            System.out.println("{\"scenario\":\"" + name + "\",\"ok\":" + said.isEmpty() + ",\"ms\":"
                    + took + ",\"said\":\"" + said.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}");
        }
        System.exit(0);
    }
}

// Clients that live on while their broker is replaced: java Moving HOST:PORT, with commands on standard input, a line each.
//   send BODY              puts it, again and again until a broker takes it
//   delay BODY LEVEL       with a delay level
//   timer BODY MS          by a timer, that many ms from now (5.x)
//   half BODY              half a transaction; a broker that asks for it is told to commit between "commit" and "hold"
//   commit, hold
//   group NAME             starts one more consumer, of another group, from the first message on; prints "NAME got BODY"
//   again                  ends the consumer, which commits its offsets, and starts another one of its group
// Prints "ready", then "sent BODY" for each of these, "got BODY" for each delivery, "done COMMAND" for the others.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Moving {
    static volatile boolean commit;
    static String names;

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static DefaultMQPushConsumer consumer(String group, String prefix) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("c" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Moving", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say(prefix + "got " + new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    public static void main(String[] arguments) throws Exception {
        names = arguments[0];
        TransactionMQProducer producer = new TransactionMQProducer("moving-p");
        producer.setNamesrvAddr(names);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.values()[2];       // not decided
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return commit ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.values()[2];
            }
        });
        producer.start();
        DefaultMQPushConsumer consumer = consumer("moving-c", "");
        say("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("commit") || words[0].equals("hold")) {
                commit = words[0].equals("commit");
                say("done " + words[0]);
                continue;
            }
            if (words[0].equals("group")) {
                consumer(words[1], words[1] + " ");
                say("done group");
                continue;
            }
            if (words[0].equals("again")) {
                while (consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().values().stream()
                        .anyMatch(one -> one.getMsgCount().get() > 0)) {
                    Thread.sleep(10);
                }
                Thread.sleep(500);          // its listener has ended, and the offset is in its table a moment later
                consumer.shutdown();
                consumer = consumer("moving-c", "");
                say("done again");
                continue;
            }
            Message message = new Message("Moving", "A", words[1].getBytes(StandardCharsets.UTF_8));
            if (words[0].equals("delay")) {
                message.setDelayTimeLevel(Integer.parseInt(words[2]));
            } else if (words[0].equals("timer")) {
                message.getClass().getMethod("setDelayTimeMs", long.class).invoke(message, Long.parseLong(words[2]));
            }
            for (;;) {
                try {
                    SendResult sent = words[0].equals("half") ? producer.sendMessageInTransaction(message, null)
                            : producer.send(message);
                    if (sent.getSendStatus() == SendStatus.SEND_OK) {
                        break;
                    }
                } catch (Exception away) {
                    System.err.println(away);
                }
                Thread.sleep(200);
            }
            say("sent " + words[1]);
        }
        System.exit(0);
    }
}

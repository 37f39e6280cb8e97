// Synchronous sends of the real client, for a measurement: java Sending HOST:PORT TOPIC BODY_BYTES WARM_S SECONDS THREADS...
// After WARM_S seconds of sends by 16 threads it prints {"warm":true}, then {"threads":...,"per_s":...,...} for each number of
// threads.
// One producer for all threads, as an application has it. A message has a tag, as most have.
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

public class Sending {
    static final int STEPS = 32;        // a doubling of the time has so many slots: 3 % wide

    static int slot(long ns) {
        int exponent = 63 - Long.numberOfLeadingZeros(Math.max(ns, STEPS));
        return (exponent - 4) * STEPS + (int) ((ns >>> (exponent - 5)) & (STEPS - 1));
    }

    static double micros(AtomicLongArray counts, long all, double share) {
        long left = (long) Math.ceil(share * all);
        for (int i = 0; i < counts.length(); i++) {
            if ((left -= counts.get(i)) <= 0) {
                int exponent = i / STEPS + 4;
                return ((32L + i % STEPS) << (exponent - 5)) / 1000.0;
            }
        }
        return -1;
    }

    static String stretch(DefaultMQProducer producer, String topic, byte[] body, int threads, double seconds) throws Exception {
        AtomicLongArray counts = new AtomicLongArray(64 * STEPS);
        AtomicLongArray sums = new AtomicLongArray(2);      // sent, failed
        CountDownLatch go = new CountDownLatch(1);
        Thread[] all = new Thread[threads];
        long[] end = new long[1];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                try {
                    go.await();
                    while (System.nanoTime() < end[0]) {
                        long begun = System.nanoTime();
                        boolean sent = false;
                        try {
                            sent = producer.send(new Message(topic, "TagA", body)).getSendStatus() == SendStatus.SEND_OK;
                        } catch (Exception refused) {
                            if (sums.get(1) == 0) {
                                System.err.println(refused);
                            }
                        }
                        sums.incrementAndGet(sent ? 0 : 1);
                        counts.incrementAndGet(slot(System.nanoTime() - begun));
                    }
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            });
            all[i].start();
        }
        long begun = System.nanoTime();
        end[0] = begun + (long) (seconds * 1e9);
        go.countDown();
        for (Thread thread : all) {
            thread.join();
        }
        double took = (System.nanoTime() - begun) / 1e9;
        long calls = sums.get(0) + sums.get(1);
        return String.format("{\"threads\":%d,\"seconds\":%.3f,\"sent\":%d,\"bad\":%d,\"per_s\":%.1f,\"p50_us\":%.1f,"
                + "\"p99_us\":%.1f,\"p999_us\":%.1f}", threads, took, sums.get(0), sums.get(1), sums.get(0) / took,
                micros(counts, calls, 0.5), micros(counts, calls, 0.99), micros(counts, calls, 0.999));
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        byte[] body = new byte[Integer.parseInt(arguments[2])];
        java.util.Arrays.fill(body, (byte) 'x');
        DefaultMQProducer producer = new DefaultMQProducer("sending");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        for (int tries = 0;; tries++) {         // a real broker registers a moment after it listens
            try {
                producer.send(new Message(topic, "TagA", body));
                break;
            } catch (Exception noRoute) {
                if (tries == 100) {
                    throw noRoute;
                }
                Thread.sleep(100);
            }
        }
        double warm = Double.parseDouble(arguments[3]), seconds = Double.parseDouble(arguments[4]);
        stretch(producer, topic, body, 16, warm);
        System.out.println("{\"warm\":true}");
        System.out.flush();
        for (int i = 5; i < arguments.length; i++) {
            System.out.println(stretch(producer, topic, body, Integer.parseInt(arguments[i]), seconds));
            System.out.flush();
        }
        System.exit(0);
    }
}

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.store.*;

/** One thread that puts: closed loop, a window of puts under way, or at a rate. All of them begin together. */
final class BenchProducer extends Thread {
    private static final int ROUND = 64; // untimed puts between two looks at the clock
    private static final long SPARE = 300_000; // ns before a due time at which one producer alone stops sleeping
    private static final long JUMP = 20_000; // ns between two looks at the clock that were no work: it did not have its core
    final Hist h = new Hist(), service = new Hist();
    long msgs, bytes, fails, ended, spun, end; // end: log offset behind the last record
    Exception failed;
    private final DefaultMessageStore s;
    private final BenchLoad.Plan plan;
    private final int id;
    private final CountDownLatch ready, go;
    private long start;

    BenchProducer(DefaultMessageStore s, BenchLoad.Plan plan, int id, CountDownLatch ready, CountDownLatch go) {
        this.s = s;
        this.plan = plan;
        this.id = id;
        this.ready = ready;
        this.go = go;
    }

    @Override
    public void run() {
        ready.countDown();
        try {
            go.await();
            start = plan.start;
            if (plan.rate > 0) due();
            else if (plan.window > 1) window();
            else closed();
        } catch (Exception e) {
            failed = e;
        }
        ended = System.nanoTime();
    }

    private boolean over(long now) {
        return bytes * plan.threads >= plan.cap || now >= start + (long) (plan.seconds * 1e9);
    }

    /** Counts a result; whether the put was taken. Refused (the page cache is busy) it has paused for a millisecond. */
    private boolean taken(PutMessageResult r) throws InterruptedException {
        if (r.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            fails++;
            Thread.sleep(1);
            return false;
        }
        AppendMessageResult a = r.getAppendMessageResult();
        msgs += plan.batch;
        bytes += a.getWroteBytes();
        end = a.getWroteOffset() + a.getWroteBytes();
        return true;
    }

    private PutMessageResult put(long i) {
        String topic = plan.topic(i);
        if (plan.batch > 1) return s.putMessages(BenchLoad.batch(plan.encoded[(int) (i & 63)], i, topic, plan.queues));
        return s.putMessage(BenchLoad.msg(i, topic, plan.queues, plan.full));
    }

    private void closed() throws InterruptedException {
        for (long i = (long) id << 32; ; i++) {
            if (plan.timed) {
                long t0 = System.nanoTime();
                PutMessageResult r = put(i);
                long t1 = System.nanoTime();
                if (taken(r)) h.add(t1 - t0);
                if (over(t1)) break;
            } else {
                taken(put(i));
                if ((i + 1) % ROUND == 0 && over(System.nanoTime())) break;
            }
        }
    }

    /** Each put has a due time, evenly spread over all producers; its time counts from there, however often it is tried. */
    private void due() throws InterruptedException {
        double gap = 1e9 * plan.threads / plan.rate;
        long first = start + (long) (gap * id / plan.threads), stop = start + (long) (plan.seconds * 1e9);
        for (long n = 0; ; n++) {
            long moment = first + (long) (n * gap);
            if (moment >= stop || bytes * plan.threads >= plan.cap) break;
            long i = ((long) id << 32) + n;
            long t0 = await(moment);
            while (!taken(put(i))) { }
            long t1 = System.nanoTime();
            h.add(t1 - moment);
            service.add(t1 - t0);
        }
    }

    /** Until `moment`; the time then. Several producers leave the cores to the store's threads, one alone is exact. */
    private long await(long moment) {
        long now = System.nanoTime(), spare = plan.threads == 1 ? SPARE : 0;
        if (moment - now > spare + 50_000) {
            LockSupport.parkNanos(moment - now - spare);
            now = System.nanoTime();
        }
        while (now < moment) {
            if (plan.threads == 1) Thread.onSpinWait();
            else Thread.yield();
            long next = System.nanoTime();
            if (next - now < JUMP) spun += next - now;
            now = next;
        }
        return now;
    }

    /** Asynchronous: up to `window` puts under way; a time runs from the call to the completion. */
    private void window() throws InterruptedException {
        Semaphore sem = new Semaphore(plan.window);
        AtomicLong total = new AtomicLong(), wrote = new AtomicLong(), refused = new AtomicLong(), last = new AtomicLong();
        for (long i = (long) id << 32; ; i++) {
            var m = BenchLoad.msg(i, plan.topic(i), plan.queues, plan.full);
            sem.acquire();
            long t0 = System.nanoTime();
            CompletableFuture<PutMessageResult> cf = s.asyncPutMessage(m);
            cf.whenComplete((r, e) -> {
                h.addShared(System.nanoTime() - t0);
                if (e != null || r == null || r.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                    refused.incrementAndGet();
                } else {
                    AppendMessageResult a = r.getAppendMessageResult();
                    total.incrementAndGet();
                    wrote.addAndGet(a.getWroteBytes());
                    last.accumulateAndGet(a.getWroteOffset() + a.getWroteBytes(), Math::max);
                }
                sem.release();
            });
            bytes = wrote.get();
            if (over(System.nanoTime())) break;
        }
        sem.acquire(plan.window);
        msgs = total.get();
        bytes = wrote.get();
        fails = refused.get();
        end = last.get();
    }
}

"""A model of timer messages, for random sequences of {put, recall, due, roll, kill, promotion, pause, clock back and ahead}.

The clock stands, and is set. What the model holds after each step, and at the end, is the table in docs/timers.md:
  - a message that was acknowledged comes once, when the clock has passed its time, and not before the furthest clock has;
  - a message that an acknowledged recall names never comes;
  - what nobody put never comes, and at the end nothing waits.
A kill is a disk that ignores every change from the n-th on, so what was under way then may be there or not."""
import collections
import random
import shutil
import time

from rmq_store import MessageStore, errors, promote
from rmq_store.base.io._io import ProbeIo
from rmq_store.base.io.files import ControlFiles
from rmq_store.services.timer.service import copy_check, load_check
from tests.timer.clock import NOW, SMALL, TIMER

PAUSES = (1, 5, 60, 2000, 604_800, 700_000, 1_500_000)       # slots
BACK = (1, 3, 50, 2000, 200_000)
DELAYS = (1, 2, 3, 5, 10, 40, 200)


class Wrong(AssertionError):
    """What the store does is not what the model says."""


class Run:
    def __init__(self, root, seed):
        self.root, self.random = root, random.Random(seed)
        self.precision = self.random.choice((10, 100, 1000))
        self.options = {**SMALL, "timer_log_file_bytes": 1040, "timer_precision_ms": self.precision, "index_enabled": False,
                        "timer_roll_window_slot": self.random.choice((2, 3, 7, 30, 1000)), "timer_max_delay_sec": 366 * 86_400}
        self.ms = self.far = NOW
        self.io = self.store = None
        self.due, self.acked, self.places = {}, set(), {}           # by body
        self.recalled, self.maybe = set(), set()                    # acknowledged; under way when something died
        self.checks = []                                            # of timercheck, as a slave may have copied it
        self.log = []                                               # what was done, to read

    # ---- the store

    def open(self, services=True, freeze=0):
        self.io = ProbeIo(keep_bytes=False)
        self.io.set_clock(self.ms, 0)
        if freeze:
            self.io.freeze("mutate", freeze)
        try:
            self.store = MessageStore.open(self.root, _io=self.io, _services=services, **self.options)
        except (errors.RmqStoreError, OSError):
            if not self.io.frozen:
                raise

    def close(self):
        store, self.store = self.store, None
        if store is not None:
            try:
                store.close()
            except (errors.RmqStoreError, OSError):
                if not self.io.frozen:
                    raise

    def set(self, ms):
        self.ms, self.far = ms, max(ms, self.far)
        self.log.append(f"clock {(ms - NOW) / self.precision:.1f}")
        if self.io is not None:
            self.io.set_clock(ms, 0)
        if self.store is not None and self.store._timer is not None:
            self.store._timer.wheel.poke()

    def settle(self):
        """Until all that is over is delivered, and what was rolled is in the wheel."""
        store, deadline = self.store, time.monotonic() + 30
        while not self.io.frozen and store._timer is not None:
            if time.monotonic() > deadline:
                raise Wrong(f"it does not settle: {store._timer.wheel.position()}, {store._timer.wheel.state()}, "
                            f"{store.stats()['wrote']} {store._position('dispatched')} {store._timer.wheel.closing()}")
            wheel = store._timer.wheel
            if (store.wait_dispatched(1) and wheel.position()[2] >= store.max_offset(TIMER, 0)
                    and wheel.position()[0] >= self.ms // self.precision * self.precision):
                end = store.stats()["wrote"]
                store.wait_dispatched(1)
                if wheel.position()[2] >= store.max_offset(TIMER, 0) and store.stats()["wrote"] == end:
                    break
            time.sleep(0.0005)
        if not self.io.frozen:
            self.judge(late=store._timer is not None)

    def judge(self, late):
        found = collections.Counter(bytes(m.body) for m in self.store.scan("T", 0))
        for body, n in found.items():
            if n > 1:
                raise Wrong(f"{body} came {n} times")
            if body not in self.due:
                raise Wrong(f"{body} was never put")
            if body in self.recalled:
                raise Wrong(f"{body} was taken back, and came")
            if self.due[body] > self.far:
                raise Wrong(f"{body} came before its time")
        for body in self.acked - self.recalled - self.maybe:
            if late and self.due[body] + self.precision <= self.ms and not found[body]:
                raise Wrong(f"{body} is over, and did not come")

    # ---- steps

    def put(self):
        body = b"%d" % len(self.due)
        self.due[body] = self.ms + self.random.choice(DELAYS) * self.precision + self.random.randrange(self.precision)
        put = self.store.put("T", body, deliver_at=self.due[body], wait=False)
        if not self.io.frozen:
            self.acked.add(body)
            self.places[body] = put.offset
            self.log.append(f"put {body} {(self.due[body] - NOW) / self.precision:.1f}")

    def recall(self):
        some = [body for body in self.places if body not in self.recalled | self.maybe and self.due[body] > self.ms]
        if not some:
            return
        body = self.random.choice(some)
        self.maybe.add(body)
        if any(bytes(m.body) == body for m in self.store.scan("T", 0)):
            return          # it came, and a promoted store whose clock is behind may not know
        try:
            self.store.recall(self.store.recall_handle(self.places[body]))
        except errors.WheelTimerMsgIllegal:         # it is over by the furthest clock
            self.log.append(f"no recall {body}")
            return
        if not self.io.frozen:
            self.maybe.remove(body)
            self.recalled.add(body)
            self.log.append(f"recall {body}")

    def work(self, steps):
        """Puts, recalls, and a clock that goes on or is set."""
        for _ in range(steps):
            kind = self.random.random()
            try:
                if kind < 0.45:
                    self.put()
                elif kind < 0.65:
                    self.recall()
                elif kind < 0.92:
                    self.set(self.ms + self.random.choice((1, 1, 2, 5, 20, 100)) * self.precision)
                elif kind < 0.96:
                    self.set(self.ms - self.random.choice(BACK) * self.precision)
                else:
                    self.set(self.ms + self.random.choice(PAUSES) * self.precision)
                if self.random.random() < 0.6:
                    self.settle()
            except (errors.RmqStoreError, OSError):
                if not self.io.frozen:
                    raise
            if self.io.frozen:
                break
        if self.store._timer is not None and not self.io.frozen and self.random.random() < 0.5:
            self.checks.append(load_check(str(self.root)))

    def life(self):
        kind = self.random.random()
        if kind < 0.2:
            self.log.append("tool")
            self.open(services=False)
            for _ in range(self.random.randrange(8)):
                self.random.choice((self.put, self.put, self.recall))()
            self.store.wait_dispatched(60)
            self.judge(late=False)
        else:
            freeze = self.random.randrange(1, 150) if kind < 0.55 else 0
            self.log.append(f"life, killed at {freeze}" if freeze else "life")
            self.open(freeze=freeze)
            if self.store is not None:
                self.work(self.random.choice((0, 6, 20)))
        self.close()
        if self.random.random() < 0.25:
            self.promote()
        if self.random.random() < 0.5:
            pause = self.random.choice(PAUSES) if self.random.random() < 0.75 else -self.random.choice(BACK)
            self.set(self.ms + pause * self.precision)

    def promote(self):
        """What a slave has: the log and the queues, and a timercheck of its master, or none. The master may have died."""
        if not (self.root / "commitlog").is_dir():
            return
        check = self.random.choice([None, *self.checks])
        self.log.append(f"promoted with {check}")
        for name in ("timerlog", "timerwheel", "config/timercheck", "config/replica.json"):
            place = self.root / name
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
        io = ProbeIo(keep_bytes=False)
        io.set_clock(self.ms, 0)
        if check is not None:
            (self.root / "config").mkdir(exist_ok=True)
            copy_check(ControlFiles(io), str(self.root), check)
        promote(self.root, force=True, _io=io, **self.options)

    def end(self):
        self.ms = self.far = self.far + self.precision
        self.open()
        deadline = time.monotonic() + 60
        while self.store._timer is not None and (self.settle() or self.store._timer.wheel.state()[0] != 0
                                                 or list(self.store.timers())):
            if time.monotonic() > deadline:
                raise Wrong(f"waits for ever: {list(self.store.timers())[:3]}")
            self.set(self.ms + 100 * self.precision)
        self.judge(late=True)
        self.close()


def play(root, seed, lives=5):
    """One sequence. Returns (messages, recalls). Raises Wrong, with the seed and the steps."""
    run = Run(root, seed)
    try:
        for _ in range(lives):
            run.life()
        run.end()
    except Wrong as wrong:
        tail = "; ".join(run.log[-40:])
        raise Wrong(f"seed {seed}, precision {run.precision}, window {run.options['timer_roll_window_slot']}: {wrong}. {tail}"
                    ) from None
    finally:
        run.close()
        shutil.rmtree(root, ignore_errors=True)
    return len(run.due), len(run.recalled)

"""What tests of the timer share: a store on a wall clock that stands, waits that end with what they wait for, and a kill."""
import shutil
import time

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.timer.service import load_check

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000, "timer_log_file_bytes": 4096,
         "timer_flush_interval_ms": 1}
TIMER = "rmq_sys_wheel_timer"
NOW = 1_795_000_000_000


class Clock:
    """A wall clock that stands, and is set."""

    def __init__(self, ms=NOW):
        self.ms, self.io, self.store = ms, ProbeIo(keep_bytes=False), None
        self.io.set_clock(ms, 0)

    def open(self, path, **options):
        self.store = MessageStore.open(path, _io=self.io, **SMALL | options)
        return self.store

    def set(self, ms):
        self.ms = ms
        self.io.set_clock(ms, 0)
        if self.store._timer is not None:
            self.store._timer.wheel.poke()


def until(what):
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def taken(store, count):
    """Until the timer has so many entries of its queue."""
    until(lambda: store._timer.wheel.position()[2] >= count)


def counted(store, count):
    """Until config/timercheck may say so."""
    until(lambda: store._timer.wheel.counted()[2] >= count)


def written(store):
    """Until config/timercheck does. It is written by the store's own thread only."""
    read_ms, _, offset = store._timer.wheel.counted()[:3]
    until(lambda: (check := load_check(store.path))[0] >= read_ms and check[2] >= offset)


def killed(path, to):
    """What a killed process would leave now."""
    shutil.copytree(path, to, ignore=shutil.ignore_patterns("*.tmp", ".alloc", "timerwheel"))    # which change, or are not read
    (to / "abort").touch()
    return to


def late(store, body, out=NOW - 5000):
    """Stores a timer message whose slot is over, as one that waits for the thread for too long."""
    return store.put(TIMER, body, properties={"TIMER_OUT_MS": str(out), "REAL_TOPIC": "T", "REAL_QID": "0"},
                     born_timestamp=NOW)


def pending(store):
    return store._timer.wheel.state()[0]


def read_to(store, ms):
    until(lambda: store._timer.wheel.position()[0] >= ms)


def roll(clock, store, ms):
    """Second by second, so that messages are rolled on their way."""
    while clock.ms < ms:
        clock.set(clock.ms + 1000)
        read_to(store, clock.ms)
        store.wait_dispatched(60)
        taken(store, store.max_offset(TIMER, 0))


def bodies(store, topic, count):
    assert count == 0 or store.wait_for_message(topic, 0, count - 1, 60)
    return [bytes(m.body) for m in store.scan(topic, 0)]

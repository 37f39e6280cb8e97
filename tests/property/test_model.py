"""A store against plain lists: any order of puts, reads, flushes, restarts and kills, on files so small that all of them roll.

Goal: what was acknowledged is returned byte for byte, at its place, whatever is done to the process; what is returned after a
kill is a prefix of what was put. A kill is a freeze of the probe: at some call, chosen or between two operations, the directory
stops listening, the store above is closed unaware, and the directory is opened again, with other options.
How deep: RMQ_PROPERTY_EXAMPLES (machines of each kind, default 25) and RMQ_PROPERTY_STEPS (operations of one, default 30).
"""
import contextlib
import gc
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.codec.batch import encode_batch
from rmq_store.status import PutStatus
from tests.conftest import held
from tests.property.model import COMMIT, PREPARED, ROLLBACK, Kept, Model, content, same

# Native threads make a run unlike its repetition: nothing is shrunk or kept, the steps are printed.
DEPTH = settings(max_examples=int(os.environ.get("RMQ_PROPERTY_EXAMPLES", "25")),
                 stateful_step_count=int(os.environ.get("RMQ_PROPERTY_STEPS", "30")), deadline=None, phases=[Phase.generate],
                 database=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
BEGIN_MS = 1_700_000_000_000
ADDRESS = ("127.0.0.1:1", "[::1]:2")

TOPICS = st.sampled_from(["T", "other_topic", "%RETRY%x"])
QUEUES = st.integers(0, 2)
# "Aa" and "BB" have one hash code.
TAGS = st.sampled_from([None, "Aa", "BB", "c", "ü"])
KEYS = st.sampled_from([(), ("k1",), ("Aa",), ("BB", "k1"), ("k2", "k1", "ключ")])
# Most are small; some fill a page, the whole file, or a window of the pool.
SIZES = st.one_of(st.integers(0, 60), st.sampled_from([0, 1000, 4000, 4096, 5000, 8100]))
COUNTS = st.sampled_from([1, 2, 3, 10, 60])
FLAGS = st.sampled_from([0, 0, 0, 0, 0, PREPARED, COMMIT, ROLLBACK])
WAIT = st.sampled_from([None, None, True, False])

REOPENED = st.fixed_dictionaries({
    "compat": st.sampled_from(["4.9", "5.x"]), "visibility": st.sampled_from(["committed", "durable"]),
    "flush_backend": st.sampled_from(["auto", "msync", "fdatasync"]), "put_lock": st.sampled_from(["mutex", "spin"]),
    "flush_wake": st.sampled_from(["timed", "eager"]), "flush_interval_ms": st.sampled_from([1, 500]),
    "commit_interval_max_ms": st.sampled_from([0, 1, 200]), "commit_pages_min": st.sampled_from([0, 4]),
    "consumequeue_flush_interval_ms": st.sampled_from([1, 1000]), "consumequeue_flush_pages_min": st.sampled_from([0, 2]),
    "consumequeue_flush_interval_max_ms": st.sampled_from([0, 60000]), "record_crc": st.booleans(),
    "segment_prezero": st.sampled_from(["off", "off", "window", "full"]), "store_host": st.sampled_from(ADDRESS),
    "index_recover_safe": st.booleans(), "consumequeue_fd_max": st.sampled_from([2, 256]),
})
FIXED = st.fixed_dictionaries({
    "segment_size_bytes": st.sampled_from([1 << 14, 20_000, 1 << 16]),
    "consumequeue_file_size_bytes": st.sampled_from([20, 200, 1000]), "consumequeue_ext_enabled": st.booleans(),
    "consumequeue_ext_file_size_bytes": st.sampled_from([128, 1000]), "index_slots": st.sampled_from([1, 7, 100]),
    "index_entries_max": st.sampled_from([2, 5, 40]),
})
# The clock: where it stands at an open, and how much it moves at each look; it may run backwards.
CLOCKS = st.tuples(st.integers(-10_000, 100_000), st.sampled_from([0, 1, 10, 4000, -1]))


class StoreMachine(RuleBasedStateMachine):
    write_path = "mmap"
    flush_mode = "async"

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="rmq-model-")
        self.root = Path(self.directory) / "store"
        self.probes = []            # they outlive every map that a forgotten view of a message keeps
        self.number = 0             # of the next message: makes bodies unlike each other
        self.views = []             # memoryviews of bodies that are held, and what they must show
        self.begun = []             # messages of the operation under way, as far as their places are not known
        self.killed = None          # how to open again when the freeze that was set has come

    # ---- life

    @initialize(fixed=FIXED, reopened=REOPENED, clock=CLOCKS)
    def begin(self, fixed, reopened, clock):
        self.fixed = fixed
        self.model = Model(fixed["segment_size_bytes"])
        self.open(reopened, clock)

    def open(self, reopened, clock, freeze_at=None):
        self.probe = ProbeIo(keep_bytes=False)
        self.probes.append(self.probe)
        self.probe.set_clock(BEGIN_MS + clock[0], clock[1])
        if freeze_at is not None:
            self.probe.freeze("mutate", freeze_at)
        self.options = reopened
        self.store = MessageStore.open(
            self.root, write_path=self.write_path, flush_mode=self.flush_mode, pool_window_size_bytes=4096,
            pool_window_count=2, message_size_max_bytes=8192, _io=self.probe, **self.fixed, **reopened)

    @contextlib.contextmanager
    def operation(self, *begun):
        """What one operation makes safe, if the directory listened to the end; else the kill is carried out.

        `begun`: messages it puts; `take` them as soon as their places are known. A store whose directory stopped listening
        may answer anything, or raise.
        """
        self.begun = list(begun)
        self.durable = 0
        try:
            yield
            committed = self.store.stats()["committed"]
        except Exception:
            if not self.probe.frozen:
                raise
        if self.probe.frozen:
            self.crash(*self.killed)
        else:
            assert not self.begun
            self.model.note_safe(max(committed, self.durable))

    def take(self, *results):
        """The next messages of this operation were stored, at these places."""
        for result in results:
            self.model.add(replace(self.begun[0], offset=result.offset, queue_offset=result.queue_offset,
                                   store_timestamp=result.store_timestamp))
            del self.begun[0]

    def take_many(self, result):
        """As take; the messages' times are read back, as they may have been stored in several turns."""
        assert len(result) == len(self.begun) and self.store.wait_dispatched(60)
        times = [self.store.message_at(offset).store_timestamp for offset in result.offsets]
        assert times == sorted(times) and times[-1] == result.store_timestamp
        for offset, queue_offset, time in zip(result.offsets, result.queue_offsets, times, strict=True):
            self.model.add(replace(self.begun[0], offset=offset, queue_offset=queue_offset, store_timestamp=time))
            del self.begun[0]

    def close(self):
        """close(strict=True) says that views are alive, and only then."""
        with pytest.raises(errors.ViewsAlive) if self.views else contextlib.nullcontext():
            self.store.close(strict=True)

    def leave(self):
        """Closes a store whose directory does not listen: whatever it says, its memory, threads and lock go."""
        self.views.clear()
        with contextlib.suppress(errors.RmqStoreError, OSError):
            self.store.close()

    def crash(self, reopened, clock, during=None):
        """What was there at the freeze is opened; `during`: recovery itself is killed at that change, and done again."""
        note(f"crash with {self.model.safe} of {len(self.model.log)} safe")
        self.probe.clear()
        self.leave()
        if during is not None:
            try:
                self.open(reopened, clock, during)
            except (errors.RmqStoreError, OSError):
                # What it just made is not there: only a frozen directory answers so.
                assert self.probe.frozen
            else:
                self.probe.freeze()
                self.leave()
        self.open(reopened, clock)
        self.model.recovered(self.store, self.begun)
        self.begun = []
        self.model.check(self.store)

    def teardown(self):
        if hasattr(self, "store"):
            self.leave()
        left = held(self.directory + "/")
        if left:
            gc.collect()
            left = held(self.directory + "/")
        shutil.rmtree(self.directory)
        assert not left, left

    # ---- putting

    def body(self, size):
        self.number += 1
        return (b"%d:" % self.number).ljust(size, b"%d" % (self.number % 10)) if size else b""

    def kept(self, topic, queue_id, body, tags=None, keys=(), unique=None, sys_flag=0, more=(), born=None):
        """A message to be put, and the size of its record."""
        pieces = [f"{name}\1{value}" for name, value in (
            ("UNIQ_KEY", unique), *more, ("TAGS", tags), ("KEYS", " ".join(keys) or None)) if value is not None]
        size = 91 + len(topic) + len(body) + len("\2".join(pieces).encode())
        size += bool(pieces and (self.options["compat"] == "5.x" or self.options["record_crc"]))
        size += 20 * self.options["record_crc"]
        host = self.options["store_host"]
        size += 12 * (host.startswith("[") + (born or host).startswith("["))
        return Kept(topic, queue_id, body, tags, tuple(keys), unique, sys_flag, size)

    def wants(self, wait, waits=True):
        """Whether this put is to be durable."""
        return wait if wait is not None else self.flush_mode == "sync" and waits

    @rule(topic=TOPICS, queue_id=QUEUES, size=SIZES, tags=TAGS, keys=KEYS, unique=st.booleans(), sys_flag=FLAGS, wait=WAIT,
          count=COUNTS, born=st.sampled_from([None, *ADDRESS]), waits=st.booleans(),
          kind=st.sampled_from([bytes, bytearray, memoryview]))
    def put(self, topic, queue_id, size, tags, keys, unique, sys_flag, wait, count, born, waits, kind):
        probe = self.probe
        for _ in range(count if size < 1000 else 1):
            body = self.body(size)
            properties = {"UNIQ_KEY": f"id{self.number}"} if unique else {}
            if not waits:
                properties["WAIT"] = "false"
            kept = self.kept(topic, queue_id, body, tags, keys, properties.get("UNIQ_KEY"), sys_flag,
                             () if waits else [("WAIT", "false")], born)
            with self.operation(kept):
                result = self.store.put(topic, kind(body), queue_id=queue_id, tags=tags, keys=" ".join(keys) or None,
                                        properties=properties or None, sys_flag=sys_flag, wait=wait, born_host=born)
                self.take(result)
                assert result.status is PutStatus.PUT_OK and result.size == kept.size
                if self.wants(wait, waits):
                    self.durable = result.offset + result.size
                    assert self.store.stats()["flushed"] >= self.durable
            if self.probe is not probe:
                return

    @rule(topic=TOPICS, queue_id=QUEUES, size=SIZES, tags=TAGS, keys=KEYS, count=COUNTS, wait=WAIT, mixed=st.booleans())
    def put_many(self, topic, queue_id, size, tags, keys, count, wait, mixed):
        begun, messages = [], []
        for i in range(count if size < 1000 else min(count, 3)):
            body = self.body(size)
            other = f"other{i}" if mixed and i % 2 else tags
            begun.append(self.kept(topic, queue_id, body, other, keys))
            messages.append({"body": body, "tags": other} if mixed and i % 2 else body)
        with self.operation(*begun):
            result = self.store.put_many(topic, messages, queue_id=queue_id, tags=tags, keys=" ".join(keys) or None, wait=wait)
            self.take_many(result)
            assert result.status is PutStatus.PUT_OK and len(result) == len(begun)
            if self.wants(wait):
                self.durable = self.model.position
                assert self.store.stats()["flushed"] >= self.durable

    @rule(topic=TOPICS, queue_id=QUEUES, size=st.integers(0, 500), tags=TAGS, count=st.integers(1, 12), wait=WAIT)
    def put_batch(self, topic, queue_id, size, tags, count, wait):
        begun = []
        for _ in range(count):
            body = self.body(size)
            begun.append(self.kept(topic, queue_id, body, tags, (), f"id{self.number}"))
        batch = encode_batch([{"body": k.body, "properties": {"UNIQ_KEY": k.unique_key} | ({"TAGS": tags} if tags else {})}
                              for k in begun], self.options["compat"])
        with self.operation(*begun):
            result = self.store.put_batch(topic, batch, queue_id=queue_id, wait=wait)
            # All of it lies in one file.
            self.model.position = self.model.place(sum(k.size for k in begun))
            self.take_many(result)
            assert result.status is PutStatus.PUT_OK
            if self.wants(wait):
                self.durable = self.model.position

    @rule(topic=TOPICS, queue_id=QUEUES, size=SIZES, count=COUNTS, wait=WAIT)
    def put_async(self, topic, queue_id, size, count, wait):
        begun = [self.kept(topic, queue_id, self.body(size)) for _ in range(count if size < 1000 else 1)]
        with self.operation(*begun):
            futures = [self.store.put_async(topic, kept.body, queue_id=queue_id, wait=wait) for kept in begun]
            results = [future.result(60) for future in futures]
            self.take(*results)
            assert all(result.status is PutStatus.PUT_OK for result in results)
            if self.wants(wait):
                self.durable = self.model.position
                assert self.store.stats()["flushed"] >= self.durable

    @rule(case=st.sampled_from(["topic", "body", "queue", "tags", "delay", "batch", "many", "large", "properties"]))
    def refused(self, case):
        """A put that breaks a rule stores nothing, and takes no offset."""
        before, probe = self.store.stats()["wrote"], self.probe
        with self.operation(), pytest.raises(errors.PutError):
            if case == "topic":
                self.store.put("no/topic", b"x")
            elif case == "body":
                self.store.put("T", "text")
            elif case == "queue":
                self.store.put("T", b"x", queue_id=-1)
            elif case == "tags":
                self.store.put("T", b"x", tags="a\x01b")
            elif case == "delay":
                self.store.put("T", b"x", properties={"DELAY": "x3"})
            elif case == "batch":
                self.store.put_batch("T", encode_batch([b"a", b"b"])[:-1])
            elif case == "many":
                self.store.put_many("T", [b"a", {"body": b"b", "tags": "\x02"}])
            elif case == "large":
                self.store.put("T", bytes(8193))
            else:
                self.store.put("T", b"", properties=b"a" * 32768)
        assert self.probe is not probe or self.store.stats()["wrote"] == before      # else a background thread met the kill

    @rule()
    def flush(self):
        with self.operation():
            self.durable = self.store.flush()
            assert self.durable >= self.model.position

    # ---- reading

    def dispatched(self, which=0.0):
        """Everything is. Returns the message in that part of the log, None where it is empty."""
        assert self.store.wait_dispatched(60)
        log = self.model.log
        return log[int(which * (len(log) - 1))] if log else None

    @rule(topic=TOPICS, queue_id=QUEUES, offset=st.integers(-1, 80), count=st.sampled_from([1, 3, 32]),
          tags=st.sampled_from([(), (), ("Aa",), ("BB", "c"), ("absent",)]))
    def get(self, topic, queue_id, offset, count, tags):
        with self.operation():
            self.dispatched()
            self.model.check_get(self.store, topic, queue_id, offset, count, tags)

    @rule(topic=TOPICS, queue_id=QUEUES)
    def get_behind_dispatch(self, topic, queue_id):
        """Without waiting: what is visible is a prefix of the queue."""
        with self.operation():
            queue = self.model.queues.get((topic, queue_id), [])
            assert all(map(same, self.store.get(topic, queue_id, 0), queue))
            assert self.store.max_offset(topic, queue_id) <= len(queue)

    @rule(topic=TOPICS, key=st.sampled_from(["k1", "Aa", "BB", "k2", "ключ", "absent"]))
    def query_key(self, topic, key):
        with self.operation():
            self.dispatched()
            self.model.check_key(self.store, topic, key)

    @rule(topic=TOPICS, queue_id=QUEUES, which=st.floats(0, 1), delta=st.integers(-2, 2))
    def by_time(self, topic, queue_id, which, delta):
        with self.operation():
            kept = self.dispatched(which)
            middle = kept.store_timestamp + delta if kept else BEGIN_MS
            self.model.check_time(self.store, topic, queue_id, middle)
            self.model.check_scan(self.store, topic, queue_id, middle, middle + 100)

    @rule(which=st.floats(0, 1))
    def by_place(self, which):
        with self.operation():
            kept = self.dispatched(which)
            if kept is not None:
                message = self.store.message_at(kept.offset)
                assert same(message, kept) and same(self.store.message_by_id(message.msg_id), kept)
            if kept is not None and kept.unique_key and kept.sys_flag != ROLLBACK:
                assert same(self.store.message_by_unique_key(kept.topic, kept.unique_key), kept)

    @rule(which=st.floats(0, 1))
    def hold_view(self, which):
        with self.operation():
            kept = self.dispatched(which)
            if kept is not None:
                self.views.append((self.store.message_at(kept.offset).body, kept.body))

    @rule()
    def check_all(self):
        with self.operation():
            self.dispatched()
            self.model.check(self.store)

    @rule()
    def readonly_beside(self):
        """A reader beside the writer sees a prefix, with everything committed."""
        with self.operation():
            committed = self.store.stats()["committed"]
            with MessageStore.open(self.root, readonly=True, **self.fixed) as reader:
                found = [content(message) for message in reader.scan()]
            assert found == self.model.log[:len(found)]
            assert len(found) >= sum(kept.end <= committed for kept in self.model.log)     # it may end inside of a record

    # ---- restarts and kills

    @rule(reopened=REOPENED, clock=CLOCKS)
    def reopen(self, reopened, clock):
        committed = self.store.stats()["committed"]
        if not self.probe.frozen:
            self.model.note_safe(committed)
        try:
            self.close()
        except Exception:
            if not self.probe.frozen:
                raise
        if self.probe.frozen:
            self.crash(reopened, clock)
            return
        assert not (self.root / "abort").exists()
        self.model.note_safe(self.model.position)
        self.views_stay()
        self.views.clear()
        self.open(reopened, clock)
        assert self.store.max_log_offset == self.model.position and not self.store.stats()["recovered"]
        self.model.check(self.store)

    @rule(reopened=REOPENED, clock=CLOCKS)
    def kill(self, reopened, clock):
        """Between two operations."""
        committed = self.store.stats()["committed"]
        if not self.probe.frozen:
            self.model.note_safe(committed)
        self.probe.freeze()
        self.crash(reopened, clock)

    @rule(reopened=REOPENED, clock=CLOCKS, at=st.integers(1, 40), during=st.sampled_from([None, None, 1, 2, 3, 5, 8]),
          kind=st.sampled_from(["mutate", "mutate", "sync", "map_store", "rename|unlink", "pwrite"]))
    def kill_later(self, reopened, clock, at, during, kind):
        """At the n-th such call from now on, wherever it is made."""
        self.probe.clear()
        self.probe.freeze(kind, at)
        self.killed = reopened, clock, during

    @invariant()
    def views_stay(self):
        for view, body in self.views:
            assert bytes(view) == body


def machine(write_path, flush_mode):
    name = f"Store_{write_path}_{flush_mode}"
    case = type(name, (StoreMachine,), {"write_path": write_path, "flush_mode": flush_mode}).TestCase
    case.settings = DEPTH
    return case


TestMmapAsync = machine("mmap", "async")
TestMmapSync = machine("mmap", "sync")
TestPoolAsync = machine("pool", "async")
TestPoolSync = machine("pool", "sync")


def lost(model):
    model.safe = len(model.log)
    model.log.append(replace(model.log[-1], offset=model.position, queue_offset=3))
    model.safe += 1


def invented(model):
    del model.log[-1]


def reordered(model):
    model.log[0], model.log[1] = model.log[1], model.log[0]


def altered(model):
    model.log[1] = replace(model.log[1], body=b"1!")


def misplaced(model):
    model.log[2] = replace(model.log[2], queue_offset=1)


@pytest.mark.parametrize("fault", [lost, invented, reordered, altered, misplaced])
def test_the_checker_finds_what_it_is_for(tmp_path, fault):
    """A checker that never failed proves nothing: here the list differs from the store in one way each."""
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 16) as store:
        model = Model(1 << 16)
        for i in range(3):
            result = store.put("T", b"%d" % i)
            model.add(Kept("T", 0, b"%d" % i, size=result.size, offset=result.offset, queue_offset=result.queue_offset,
                           store_timestamp=result.store_timestamp))
        assert store.wait_dispatched(60)
        model.check(store)
        fault(model)
        with pytest.raises(AssertionError):
            model.recovered(store, [])
        with pytest.raises(AssertionError):
            model.check_log(store)

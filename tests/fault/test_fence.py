"""A failed or late sync while several producers wait for it: all of them learn the truth, and it is the same truth."""
import asyncio
import errno
import queue
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import DurabilityError, SyncFailed, WriteFailed
from rmq_store.status import PutStatus
from tests.crash import scenario
from tests.soon import until

configs = pytest.mark.parametrize("config", [c for c in scenario.CONFIGS if c[1] == "sync"], ids="-".join)


def log_syncs(config):
    """Whoever waits until one of them is held must be sure whose: zeros written ahead are synced, too (segment_prezero)."""
    return {"kind": scenario.durable_call(config), "path": "/commitlog/"}


@pytest.fixture
def store_on(tmp_path):
    """store_on(config) gives (store, probe); the store is closed at the end, whatever it says to that."""
    made = []

    def make(config, **more):
        probe = ProbeIo()
        options = {**scenario.SMALL, **scenario.config_options(config), **more}
        store = MessageStore.open(tmp_path / "s", _io=probe, **options)
        made.append((store, probe))
        return store, probe

    yield make
    for store, probe in made:
        probe.release()
        try:
            store.close()
        except DurabilityError:
            pass


@configs
def test_every_waiter_gets_the_error(store_on, config):
    store, probe = store_on(config)
    first = store.put("T", b"durable")
    probe.hold(**log_syncs(config))
    probe.fail(**log_syncs(config), nth=1, errno=errno.EIO)
    outcomes = []

    def produce(k):
        try:
            outcomes.append(store.put("T", b"%d" % k))
        except DurabilityError as e:
            outcomes.append(e.errno)

    threads = [threading.Thread(target=produce, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    probe.wait_held()
    until(lambda: store._position("wrote") >= first.size * 4)
    futures = [store.put_async("T", b"later") for _ in range(3)]
    probe.release()
    for t in threads:
        t.join(30)
    assert outcomes == [errno.EIO] * 4
    for future in futures:
        with pytest.raises(DurabilityError):
            future.result(30)
    with pytest.raises(DurabilityError):
        store.put("T", b"refused")
    with pytest.raises(DurabilityError):
        store.put_async("T", b"refused")
    assert store._position("flushed") == first.size


# Every back end × write path × flush mode, and the step that fails: what an asynchronous store flushes is waited for as well.
ALL = list(scenario.CONFIGS)
if scenario.RING_HERE:
    ALL += [("pool", "async", "io_uring-dsync"), ("pool", "async", "io_uring-buffered"), ("pool", "sync", "io_uring-buffered")]
STEPS = [(c, "write", "pwrite|ring_write") for c in ALL if c[0] == "pool" and c[2] != "msync"]
STEPS += [(c, "sync", "msync|fdatasync|ring_sync") for c in ALL if "dsync" not in c[2]]


def by_callback(store):
    told = queue.Queue()
    store.put_async("T", b"w", wait=True).add_done_callback(told.put)
    told.get().result()


def by_task(store):
    async def wait():
        await store.put_async("T", b"w", wait=True)

    asyncio.run(wait())


WAITERS = {"put": lambda s: s.put("T", b"w", wait=True), "put_many": lambda s: s.put_many("T", [b"w"] * 3, wait=True),
           "future": lambda s: s.put_async("T", b"w", wait=True).result(), "callback": by_callback, "task": by_task,
           "flush": lambda s: s.flush()}


@pytest.mark.parametrize(("config", "step", "calls"), STEPS, ids=lambda x: "-".join(x) if isinstance(x, tuple) else None)
def test_whoever_waits_however_gets_the_errno(store_on, config, step, calls):
    store, probe = store_on(config, segment_prezero="off", flush_deadline_ms=60_000)
    first = store.put("T", b"durable", wait=True)
    probe.hold(calls, path="/commitlog/")
    probe.fail(calls, nth=1, errno=errno.EIO, path="/commitlog/")
    outcomes = {}

    def wait(name):
        try:
            outcomes[name] = WAITERS[name](store)
        except DurabilityError as e:
            outcomes[name] = type(e), e.errno

    threads = [threading.Thread(target=wait, args=(name,)) for name in WAITERS]
    for t in threads:
        t.start()
    probe.wait_held()
    until(lambda: store.stats()["puts"] == 1 + 1 + 3 + 3)
    assert not outcomes
    probe.release()
    for t in threads:
        t.join(30)
    assert outcomes == dict.fromkeys(WAITERS, (WriteFailed if step == "write" else SyncFailed, errno.EIO))
    outcomes.clear()
    for name in WAITERS:                # nor is anybody acknowledged who comes later
        wait(name)
    assert outcomes == dict.fromkeys(WAITERS, (WriteFailed if step == "write" else SyncFailed, errno.EIO))
    assert store._position("flushed") == first.offset + first.size
    until(lambda: store.get("T", 0, 0).messages)       # reads go on, and what is durable still comes to its queue
    assert bytes(store.get("T", 0, 0).messages[0].body) == b"durable"


@pytest.mark.parametrize("config", [("pool", "async", "fdatasync"), ("mmap", "sync", "fdatasync")], ids="-".join)
def test_a_put_that_waits_for_a_file_hears_of_the_fence(store_on, config):
    """The device that fails a sync may be the one on which making the next file hangs, for as long as it likes."""
    store, probe = store_on(config, segment_prezero="off", flush_deadline_ms=600_000)
    store.put("T", b"durable", wait=True)
    probe.hold("fallocate", path="/.alloc/")
    outcomes = []

    def produce():
        try:
            while True:
                store.put("T", bytes(6000), wait=False)
        except DurabilityError as e:
            outcomes.append(e.errno)

    thread = threading.Thread(target=produce)
    thread.start()
    probe.wait_held()
    until(lambda: store.stats()["file_waits"] > 0)
    probe.fail("fdatasync", nth=1, errno=errno.EIO, path="/commitlog/")
    with pytest.raises(SyncFailed):     # of the flush, or of one that came by itself
        store.put("T", b"fits into this file", wait=False)
        store.flush()
    thread.join(30)                     # the hold stays: nobody makes a file
    assert outcomes == [errno.EIO]


@configs
def test_a_late_sync_is_a_status_and_the_next_one_covers_it(store_on, config):
    store, probe = store_on(config, segment_prezero="off", flush_deadline_ms=20)
    probe.hold(**log_syncs(config))
    late = []
    thread = threading.Thread(target=lambda: late.append(store.put("T", b"first")))     # its own thread does the sync
    thread.start()
    probe.wait_held()
    result = store.put("T", b"second")
    assert result.status == PutStatus.FLUSH_DISK_TIMEOUT and result.status.stored
    assert not late                     # its deadline has passed; it cannot leave the sync, and returns with it
    probe.release()
    thread.join(30)
    assert late[0].status == PutStatus.PUT_OK
    assert store.flush() >= result.offset + result.size
    assert store.wait_dispatched(10)
    assert [bytes(m.body) for m in store.get("T", 0, 0)] == [b"first", b"second"]


@configs
def test_nobody_is_told_before_the_sync_has_ended(store_on, config):
    store, probe = store_on(config, segment_prezero="off")
    probe.hold(**log_syncs(config))
    done = threading.Event()
    thread = threading.Thread(target=lambda: (store.put("T", b"x"), done.set()))
    thread.start()
    probe.wait_held()
    future = store.put_async("T", b"y")
    assert not done.is_set() and not future.done() and store._position("flushed") == 0
    assert not list(store.get("T", 0, 0))           # 5.x: not visible before it is durable
    probe.release()
    thread.join(30)
    assert done.is_set() and future.result(30).status == PutStatus.PUT_OK


@pytest.mark.parametrize("config", [c for c in scenario.CONFIGS if c[:2] == ("pool", "sync") and "dsync" not in c[2]],
                         ids="-".join)
def test_a_failed_sync_of_zeros_ahead_is_the_logs(tmp_path, config):
    """It covers what producers have put into the file meanwhile, and the device has said no."""
    options = {**scenario.SMALL, **scenario.config_options(config), "segment_prezero": "window"}
    with MessageStore.open(tmp_path / "s", **options) as store:
        store.put("T", b"a")
    probe = ProbeIo()
    probe.fail("fdatasync", 1, errno.EIO, path="/commitlog/")
    store = MessageStore.open(tmp_path / "s", _io=probe, **options)
    for _ in range(1000):               # nothing was put: it is the sync of the zeros that open() waits for
        if probe.hits:
            break
        threading.Event().wait(0.01)
    assert probe.hits == 1
    with pytest.raises(DurabilityError) as failed:
        for _ in range(2000):
            store.put("T", b"a")        # the fence goes up in another thread
    assert failed.value.errno == errno.EIO
    with pytest.raises(DurabilityError):
        store.close()


@pytest.mark.parametrize("config", [c for c in scenario.CONFIGS if c[:2] == ("pool", "async")], ids="-".join)
def test_a_put_hears_that_a_write_failed_behind_it(store_on, config):
    """The fence is one word, and which step raised it another: who has seen the one has the other."""
    store, probe = store_on(config, segment_size_bytes=1 << 24, pool_window_size_bytes=1 << 20)
    probe.fail("pwrite|ring_write", 3, errno.EIO, path="/commitlog/", sticky=True)
    with pytest.raises(WriteFailed) as failed:
        while True:
            store.put("T", b"x")
    assert failed.value.errno == errno.EIO

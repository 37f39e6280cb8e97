"""A failed or late sync while several producers wait for it: all of them learn the truth, and it is the same truth."""
import errno
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.errors import DurabilityError, WriteFailed
from rmq_store.io._io import ProbeIo
from rmq_store.status import PutStatus
from tests.crash import scenario

configs = pytest.mark.parametrize("config", [c for c in scenario.CONFIGS if c[1] == "sync"], ids="-".join)


def log_syncs(config):
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


def wait_until(condition):
    """Waits for what another thread is about to do; the test's own time limit ends a wait in vain."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


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
    wait_until(lambda: store._position("wrote") >= first.size * 4)
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


@configs
def test_a_late_sync_is_a_status_and_the_next_one_covers_it(store_on, config):
    store, probe = store_on(config, flush_deadline_ms=20)
    probe.hold(**log_syncs(config))
    late = []
    thread = threading.Thread(target=lambda: late.append(store.put("T", b"first")))     # its own thread does the sync
    thread.start()
    probe.wait_held()
    result = store.put("T", b"second")
    assert result.status == PutStatus.FLUSH_DISK_TIMEOUT and result.status.stored
    probe.release()
    thread.join(30)
    assert late[0].status == PutStatus.PUT_OK
    assert store.flush() >= result.offset + result.size
    assert store.wait_dispatched(10)
    assert [bytes(m.body) for m in store.get("T", 0, 0)] == [b"first", b"second"]


@configs
def test_nobody_is_told_before_the_sync_has_ended(store_on, config):
    store, probe = store_on(config)
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

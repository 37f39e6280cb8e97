"""What every flush back end promises, on every write path and in both flush modes: one suite, the same for all.

Faults, waiters and power cuts are judged with the same list of configurations in tests/fault and tests/crash.
"""
import os
import random
import shutil
import subprocess
import tempfile
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import DurabilityError
from rmq_store.log.flush._uring import uring_probe
from tests.crash import scenario

CONFIGS = list(scenario.CONFIGS)
if scenario.RING_HERE:
    CONFIGS += [("pool", "async", "io_uring-dsync"), ("pool", "async", "io_uring-buffered"),
                ("pool", "sync", "io_uring-buffered"),
                ("pool", "async", "io_uring-sqpoll"), ("pool", "sync", "io_uring-sqpoll"), ("pool", "sync", "io_uring-shallow")]
    scenario.URING["io_uring-sqpoll"] = {"flush_backend": "io_uring", "uring_durability": "fdatasync", "uring_sqpoll": "true"}
    scenario.URING["io_uring-shallow"] = {"flush_backend": "io_uring", "uring_durability": "fdatasync", "uring_depth": "1"}
    scenario.URING["io_uring-iopoll"] = {"flush_backend": "io_uring", "uring_durability": "fdatasync", "uring_direct": "on",
                                           "uring_iopoll": "true"}


def why_not_polled():
    """Why the device that holds temporary files takes no polled writes; empty: it does."""
    found = uring_probe(tempfile.gettempdir(), iopoll=True)
    refused = {step: os.strerror(found[step]) for step in ("setup", "file", "direct", "direct_write") if found[step]}
    return ", ".join(f"IORING_SETUP_IOPOLL: {step}: {text}" for step, text in refused.items())


def parameters(some):
    return pytest.mark.parametrize("config", some, ids=lambda c: "-".join(c))


NOT_POLLED = why_not_polled()
POLLED = [pytest.param(("pool", mode, "io_uring-iopoll"), marks=pytest.mark.skipif(bool(NOT_POLLED), reason=NOT_POLLED))
          for mode in ("async", "sync")]
configs = parameters([*CONFIGS, *POLLED])
SIZES = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 8000, "message_size_max_bytes": 300_000,
         "consumequeue_file_size_bytes": 20 * 4096, "pool_window_size_bytes": 64 << 10}


def bodies(seed, count, most=60_000):
    rnd = random.Random(seed)
    return [rnd.randbytes(rnd.choice([0, 1, 90, 700, 4000, 4096, 9000, most])) for _ in range(count)]


def open_store(path, config, **more):
    return MessageStore.open(path, **{**SIZES, **scenario.config_options(config), **more})


def found(store):
    return [bytes(m.body) for m in store.scan("T", 0)]


@configs
def test_what_was_put_is_read_at_once_and_after_reopening(tmp_path, config):
    """Records across pool and file ends, small and large; read while they are recent, and from the files."""
    sent = bodies(1, 200)
    with open_store(tmp_path / "s", config) as store:
        for i, body in enumerate(sent):
            result = store.put("T", body, queue_id=0)
            if i % 50 == 0:
                assert store.wait_dispatched(30)
                assert bytes(store.get("T", 0, i).messages[0].body) == body
                assert bytes(store.message_at(result.offset).body) == body
        assert store.wait_dispatched(30)
        assert found(store) == sent
        assert [bytes(m.body) for _, _, _, m in store.log_records() if m is not None] == sent
    with open_store(tmp_path / "s", config) as store:
        assert found(store) == sent
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        assert found(store) == sent


@configs
def test_a_log_that_ends_anywhere_goes_on_there(tmp_path, config):
    sent = []
    for body in bodies(2, 12, 5000):
        with open_store(tmp_path / "s", config) as store:
            assert found(store) == sent
            store.put("T", body, queue_id=0)
            sent.append(body)
            store.put("T", body[:7], queue_id=0)
            sent.append(body[:7])
    with open_store(tmp_path / "s", config) as store:
        assert found(store) == sent


def test_every_back_end_writes_the_same_bytes(tmp_path):
    def log(config):
        io = ProbeIo(keep_bytes=False)
        io.set_clock(1_700_000_000_000)
        place = tmp_path / "-".join(config)
        with MessageStore.open(place, _io=io, **SIZES, **scenario.config_options(config)) as store:
            for body in bodies(3, 120):
                store.put("T", body, queue_id=0, keys="k", born_timestamp=1)
            store.put_many("T", [{"body": b} for b in bodies(4, 30, 3000)], born_timestamp=1)
        return {f.name: f.read_bytes() for f in sorted((place / "commitlog").iterdir())}

    first, *others = CONFIGS if NOT_POLLED else [*CONFIGS, *(p.values[0] for p in POLLED)]
    expected = log(first)
    assert len(expected) > 1
    for config in others:
        assert log(config) == expected, config


@configs
def test_positions_are_in_order_and_only_grow(tmp_path, config):
    with open_store(tmp_path / "s", config, flush_interval_ms=1, commit_interval_max_ms=1) as store:
        done = threading.Event()
        wrong = []

        def look():
            before = (0, 0, 0)
            while not done.is_set():
                s = store.stats()       # read one after the other: the earlier of two may be behind
                flushed, committed, wrote = (s[n] for n in ("flushed", "committed", "wrote"))
                if (flushed, committed, wrote) < before or flushed < before[0] or committed < before[1] or wrote < before[2]:
                    wrong.append((before, flushed, committed, wrote))
                before = flushed, committed, wrote

        def produce(k):
            for body in bodies(k, 60):
                result = store.put("T", body, queue_id=k)
                if config[1] == "sync" and result.status == 0 and store._position("flushed") < result.offset + result.size:
                    wrong.append((result.offset, store._position("flushed")))

        watcher = threading.Thread(target=look)
        watcher.start()
        producers = [threading.Thread(target=produce, args=(k,)) for k in range(3)]
        for t in producers:
            t.start()
        for t in producers:
            t.join()
        flushed = store.flush()
        done.set()
        watcher.join()
        assert not wrong
        assert flushed == store._position("wrote")
        assert store.wait_dispatched(30)
        for k in range(3):
            assert [bytes(m.body) for m in store.scan("T", k)] == bodies(k, 60)


@parameters([*(c for c in CONFIGS if c[1] == "sync"), POLLED[1]])
def test_one_sync_serves_all_that_waited(tmp_path, config):
    io = ProbeIo(keep_bytes=False)
    kinds = scenario.durable_call(config)
    with MessageStore.open(tmp_path / "s", _io=io, **{**SIZES, **scenario.config_options(config), "segment_prezero": "off",
                                                     "flush_deadline_ms": 60_000}) as store:
        size = store.put("T", b"x" * 100).size
        io.hold(kinds, "/commitlog/")
        threads = [threading.Thread(target=store.put, args=("T", b"x" * 100)) for _ in range(12)]
        threads[0].start()
        io.wait_held()
        for t in threads[1:]:
            t.start()
        pause = threading.Event()
        while store._position("wrote") < 13 * size:
            pause.wait(0.001)
        before = len(io.trace())
        io.release()
        for t in threads:
            t.join()
        steps = sum(c.kind in kinds.split("|") and "/commitlog/" in (c.path or "") for c in io.trace(before))
        assert store._position("flushed") == 13 * size
        assert steps <= 3


@parameters([*(c for c in CONFIGS if c[1] == "sync"), POLLED[1]])
def test_what_nobody_waits_for_becomes_durable_by_itself(tmp_path, config):
    """Within two milliseconds of the first (GATHER_NS), the kernel willing; here: without any other call."""
    with open_store(tmp_path / "s", config) as store:
        pause = threading.Event()
        for size in (10, 5000, 200_000):
            result = store.put("T", bytes(size), wait=False)
            assert result.status == 0
            while store._position("flushed") < result.offset + result.size:     # the test's own time limit ends a wait in vain
                pause.wait(0.001)


@parameters([c for c in CONFIGS if c[0] == "pool"])
def test_put_many_of_more_than_the_pool_holds(tmp_path, config):
    sent = bodies(5, 500, 30_000)
    with open_store(tmp_path / "s", config) as store:
        assert sum(map(len, sent)) > 2 * store.stats()["pool_bytes"]
        many = store.put_many("T", sent, wait=True)
        assert (many.count, many.status, list(many.queue_offsets)) == (500, 0, list(range(500)))
        assert store._position("flushed") == store._position("wrote")
        assert store.wait_dispatched(30) and found(store) == sent


@configs
def test_readers_of_the_end_see_right_bytes_while_it_is_written(tmp_path, config):
    """Views over the last block, which direct writes repeat until it is full, and copies of what is still in the pool."""
    sent = [bytes([65 + i % 26]) * (37 + i * 31 % 900) for i in range(400)]
    with open_store(tmp_path / "s", config, commit_interval_max_ms=1, commit_pages_min=0) as store:
        kept, wrong, seen = [], [], []

        def read():
            at = 0
            while at < len(sent):
                for m in store.get("T", 0, at):
                    if bytes(m.body) != sent[m.queue_offset]:
                        wrong.append(m.queue_offset)
                    if m.queue_offset % 40 == 0:
                        kept.append(m)
                    at = m.queue_offset + 1
            seen.append(at)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for t in readers:
            t.start()
        for body in sent:
            store.put("T", body, queue_id=0)
        for t in readers:
            t.join()
        assert not wrong and seen == [len(sent)] * 2
        assert all(bytes(m.body) == sent[m.queue_offset] for m in kept)
        kept.clear()


@configs
def test_after_a_failed_write_nothing_is_acknowledged_and_reopening_recovers(tmp_path, config):
    io = ProbeIo()
    kinds = "pwrite|ring_write" if config[0] == "pool" and config[2] != "msync" else scenario.durable_call(config)
    store = MessageStore.open(tmp_path / "s", _io=io, **{**SIZES, **scenario.config_options(config), "segment_prezero": "off"})
    good = store.put("T", b"good", queue_id=0)
    store.flush()
    io.fail(kinds, 1, 5, path="/commitlog/", sticky=True)
    with pytest.raises(DurabilityError) as failed:
        store.put("T", b"bad", queue_id=0)
        store.flush()
    assert failed.value.errno == 5
    for call in (lambda: store.put("T", b"refused", queue_id=0), store.flush, lambda: store.put_async("T", b"refused")):
        with pytest.raises(DurabilityError):
            call()
    assert store._position("flushed") == good.offset + good.size
    assert bytes(store.message_at(good.offset).body) == b"good"
    with pytest.raises(DurabilityError):
        store.close()
    io.clear()
    assert os.path.exists(tmp_path / "s/abort")
    with open_store(tmp_path / "s", config) as store:
        assert found(store)[0] == b"good" and b"refused" not in found(store)
        store.put("T", b"again", queue_id=0)
        store.flush()
        assert store.wait_dispatched(30)
        assert found(store)[-1] == b"again"


@pytest.mark.skipif(not scenario.RING_HERE, reason="the kernel refuses a ring")
def test_direct_writes_leave_the_page_cache_alone_while_producers_fill_the_pool(tmp_path):
    """Dispatch takes everything from the pool: not one page of the log is read back from the device."""
    if shutil.which("fincore") is None or uring_probe(tmp_path)["direct"] != 0:
        pytest.skip("no fincore, or no direct I/O")
    sent = 3000
    with MessageStore.open(tmp_path / "s", **{**SIZES, "segment_size_bytes": 64 << 20}, flush_backend="io_uring") as store:
        for i in range(sent):
            store.put("T", b"%05d" % i * 2000, queue_id=0)
        store.flush()
        assert store.wait_dispatched(60)
        out = subprocess.run(["fincore", "-b", "-n", "-o", "RES", tmp_path / "s/commitlog" / ("0" * 20)],
                             capture_output=True, text=True, check=True).stdout
        assert int(out) == 0

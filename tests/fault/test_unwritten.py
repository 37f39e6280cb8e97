"""The pool cannot be written: what was put and is in memory alone is said by number and place, and can be read until the store
is closed. For a want that passes nothing is lost, and the store continues by itself."""
import errno
import logging
import time
from contextlib import contextmanager, suppress

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.status import GetStatus, PutStatus
from tests.crash import scenario

CONFIGS = [("pool", "async", "fdatasync")]
if scenario.RING_HERE:
    CONFIGS += [("pool", "async", "io_uring"), ("pool", "async", "io_uring-buffered")]
configs = pytest.mark.parametrize("config", CONFIGS, ids="-".join)
WRITES = "pwrite|ring_write"
# Nothing is committed before somebody asks for it.
LATE = {"commit_pages_min": 1 << 20, "commit_interval_max_ms": 3_600_000}
SOON = {"commit_pages_min": 0, "commit_interval_max_ms": 1}
PATIENCE_S = 30


@pytest.fixture(autouse=True)
def loud(quiet_recovery):
    logging.getLogger("rmq_store").setLevel(logging.WARNING)


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def opened(root, config, probe, **more):
    return MessageStore.open(root, _io=probe, **{**scenario.SMALL, **scenario.config_options(config), **more})


@contextmanager
def fenced(store, error=errors.WriteFailed):
    """A store whose close raises: an assertion in the block comes first."""
    try:
        yield store
    except BaseException:
        with suppress(errors.DurabilityError):
            store.close()
        raise
    with pytest.raises(error):
        store.close()


def put(store, first, end, **more):
    """Messages `first` to `end`, over a file's end, into two queues of a topic: [(queue id, body, result)]."""
    out = []
    for n in range(first, end):
        body = b"%04d" % n * 700
        out.append((n % 2, body, store.put("T", body, queue_id=n % 2, tags=f"t{n % 3}", **more)))
    return out


def check(store, sent):
    """All of it is there, by every way that reads by place."""
    for queue_id in (0, 1):
        mine = [body for queue, body, _ in sent if queue == queue_id]
        assert [bytes(m.body) for m in store.scan("T", queue_id)] == mine
        last = store.get("T", queue_id, len(mine) - 1)
        assert last.status is GetStatus.FOUND and (last.next_offset, last.max_offset) == (len(mine), len(mine))
        end = store.get("T", queue_id, len(mine))       # a consumer that has read them waits, and is not sent back
        assert (end.status, end.next_offset, end.max_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, len(mine), len(mine))
        assert store.get("T", queue_id, len(mine) + 1).status is GetStatus.OFFSET_OVERFLOW_BADLY
    assert [bytes(m.body) for m in store.scan("T")] == [body for _, body, _ in sent]
    for queue_id, body, result in sent:
        message = store.message_at(result.offset)
        assert (bytes(message.body), message.queue_id, message.queue_offset) == (body, queue_id, result.queue_offset)
        assert bytes(store.message_by_id(result.msg_id).body) == body
    assert [kind for kind, *_ in store.log_records()].count("msg") == len(sent)
    tagged = [body for n, (queue, body, _) in enumerate(sent) if queue == 0 and n % 3 == 0]
    got, at = [], 0
    while at < len([queue for queue, _, _ in sent if queue == 0]):
        result = store.get("T", 0, at, tags="t0")
        got += [bytes(m.body) for m in result]
        assert result.next_offset > at
        at = result.next_offset
    assert got == tagged
    assert store.message_at(sent[-1][2].offset + 1) is None and store.message_at(sent[-1][2].offset + sent[-1][2].size) is None


@configs
@pytest.mark.parametrize("how", ["error", "short", "queues"])
def test_what_was_acknowledged_is_said_and_can_be_read_until_the_close(tmp_path, caplog, config, how):
    probe = ProbeIo()
    store = opened(tmp_path / "s", config, probe, **LATE)
    sent = put(store, 0, 3)
    store.flush()
    assert store.wait_dispatched(30)
    sent += put(store, 3, 11)           # over the end of a file
    if how == "short":
        probe.fail(WRITES, 1, path="/commitlog/", short=True)
        probe.fail(WRITES, 2, errno.EIO, path="/commitlog/", sticky=True)
    else:
        probe.fail(WRITES, 1, errno.EIO, path="/commitlog/", sticky=True)
    if how == "queues":                 # nor do those that are in the file get entries
        probe.fail("pwrite|open|mkdir", 1, errno.ENOSPC, path="/consumequeue", sticky=True)
    with pytest.raises(errors.WriteFailed) as failed:
        store.flush()
    first, last = sent[3][2], sent[-1][2]
    lost = (8, first.offset, last.offset + last.size)
    assert failed.value.unwritten == lost and failed.value.errno == errno.EIO
    said = f"8 messages at log offsets {lost[1]} to {lost[2]} were put and not written"
    for call in (lambda: store.put("T", b"refused"), store.flush):
        with pytest.raises(errors.WriteFailed, match=f"{said}: they can be read .* until the store is closed") as failed:
            call()
    assert store.stats()["unwritten_messages"] == 8 and store.stats()["wrote"] == lost[2] == store.max_log_offset
    check(store, sent)
    until(lambda: any(r.event == "STORE_FAILED" for r in caplog.records))
    record = next(r for r in caplog.records if r.event == "STORE_FAILED")
    assert said in record.getMessage()
    with pytest.raises(errors.WriteFailed, match=f"{said}, and were lost when the store was closed") as failed:
        store.close()
    assert failed.value.unwritten == lost
    with pytest.raises(errors.StoreClosed):
        store.get("T", 0, 0)
    with opened(tmp_path / "s", config, None) as store:         # a short write stores some all the same
        there = [bytes(m.body) for m in store.scan("T")]
        assert there == [body for _, body, _ in sent[:len(there)]] and (len(there) == 3 or how == "short")


@configs
def test_a_write_that_fails_behind_others_loses_what_is_behind(tmp_path, config):
    """Commits end where they like, also within a message: that one is put together of the file and the pool."""
    probe = ProbeIo()
    with fenced(opened(tmp_path / "s", config, probe, **SOON)) as store:
        probe.fail(WRITES, 5, errno.EIO, path="/commitlog/", sticky=True)
        sent = []
        with pytest.raises(errors.WriteFailed) as refused:
            while len(sent) < 1000:
                sent += put(store, len(sent), len(sent) + 1)
        count, begin, _ = refused.value.unwritten or (0, 0, 0)
        until(lambda: store.stats()["dispatched"] >= min(begin if count else 1 << 60, store.stats()["committed"]))
        assert count == sum(result.offset >= begin for _, _, result in sent if count)
        check(store, sent)


@pytest.mark.parametrize(("config", "code"), [
    pytest.param(config, code, id="-".join([*config, errno.errorcode[code]])) for config in CONFIGS
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    if config == CONFIGS[0] or code in (errno.ENOSPC, errno.EMFILE)])
def test_for_a_want_commits_pause_and_nothing_is_lost(tmp_path, caplog, config, code):
    probe = ProbeIo()
    with opened(tmp_path / "s", config, probe, **SOON, flush_deadline_ms=300) as store:
        sent = put(store, 0, 3)
        store.flush()
        assert store.wait_dispatched(30)
        probe.fail(WRITES, 1, code, path="/commitlog/", sticky=True)
        sent += put(store, 3, 6)
        until(lambda: probe.hits >= 3)          # it is tried again
        assert store.stats()["errno"] == 0 and store.stats()["unwritten_messages"] == 3
        check(store, sent)
        kind = errors.DiskFull if code in errors.DiskFull.codes else errors.OutOfResources
        for call in (store.flush, store.wait_dispatched):
            with pytest.raises(kind, match="the store continues by itself") as error:
                call()
            assert error.value.errno == code
        sent += put(store, 6, 7, wait=True)
        assert sent[-1][2].status is PutStatus.FLUSH_DISK_TIMEOUT
        refused = None
        while refused is None:                  # until the pool is full
            try:
                sent += put(store, len(sent), len(sent) + 1)
            except errors.RmqStoreError as error:
                refused = error
            assert len(sent) < 1000
        assert type(refused) is kind and refused.errno == code
        check(store, sent)
        until(lambda: any(r.event == "COMMITS_PAUSE" for r in caplog.records))
        probe.clear()
        until(lambda: store.stats()["unwritten_messages"] == 0)
        assert store.flush() > 0 and store.wait_dispatched(30)
        sent += put(store, len(sent), len(sent) + 1, wait=True)
        assert sent[-1][2].status is PutStatus.PUT_OK
        assert store.wait_dispatched(30)
        check(store, sent)
        until(lambda: any(r.event == "COMMITS_CONTINUE" for r in caplog.records))
    with opened(tmp_path / "s", config, None) as store:
        assert not store.stats()["recovered"]
        assert [bytes(m.body) for m in store.scan("T")] == [body for _, body, _ in sent]


@pytest.mark.parametrize("backend", ["fdatasync", *(["io_uring"] if scenario.RING_HERE else [])])
def test_what_waits_for_the_device_gets_there_when_the_want_is_over(tmp_path, backend):
    probe = ProbeIo()
    with opened(tmp_path / "s", ("pool", "sync", backend), probe, flush_deadline_ms=200) as store:
        assert store.put("T", b"0").status is PutStatus.PUT_OK
        probe.fail(WRITES, 1, errno.ENOSPC, path="/commitlog/", sticky=True)
        assert store.put("T", b"1").status is PutStatus.FLUSH_DISK_TIMEOUT
        later = store.put_async("T", b"2")
        until(lambda: probe.hits >= 3)
        assert store.stats()["errno"] == 0 and store.max_offset("T", 0) == 1
        probe.clear()
        until(lambda: store.stats()["flushed"] == store.stats()["wrote"])       # by itself
        assert later.result(timeout=PATIENCE_S).offset > 0
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("T", 0)] == [b"0", b"1", b"2"]


@configs
def test_a_close_waits_for_what_it_lacks_and_then_says_what_is_lost(tmp_path, config):
    probe = ProbeIo()
    store = opened(tmp_path / "s", config, probe, **LATE, close_timeout_ms=200)
    sent = put(store, 0, 2)
    store.flush()
    sent += put(store, 2, 5)
    probe.fail(WRITES, 1, errno.ENOSPC, path="/commitlog/", sticky=True)
    with pytest.raises(errors.WriteFailed, match=r"3 messages at log offsets .* were lost when the store was closed") as failed:
        store.close()
    assert failed.value.errno == errno.ENOSPC and probe.hits >= 2
    with opened(tmp_path / "s", config, None) as store:
        assert [bytes(m.body) for m in store.scan("T")] == [body for _, body, _ in sent[:2]]


@configs
def test_a_close_is_in_order_where_the_want_passes_in_time(tmp_path, config):
    probe = ProbeIo()
    with opened(tmp_path / "s", config, probe, **LATE) as store:
        sent = put(store, 0, 5)
        for nth in (1, 2):
            probe.fail(WRITES, nth, errno.ENOSPC, path="/commitlog/")
    assert probe.hits == 2
    with opened(tmp_path / "s", config, None) as store:
        assert not store.stats()["recovered"]
        assert [bytes(m.body) for m in store.scan("T")] == [body for _, body, _ in sent]


@pytest.mark.skipif(not scenario.RING_HERE, reason="no io_uring")
def test_a_write_that_syncs_as_well_has_failed(tmp_path):
    probe = ProbeIo()
    config = ("pool", "async", "io_uring-dsync")
    with fenced(opened(tmp_path / "s", config, probe, **LATE)) as store:
        put(store, 0, 1)
        probe.fail(WRITES, 1, errno.ENOSPC, path="/commitlog/")
        with pytest.raises(errors.WriteFailed):
            store.flush()
        assert store.stats()["errno"] == errno.ENOSPC


@pytest.mark.parametrize(("config", "code"), [(("mmap", "async", "fdatasync"), errno.ENOSPC), (CONFIGS[0], errno.EIO)],
                         ids=["ENOSPC", "EIO"])
def test_a_sync_is_not_tried_again(tmp_path, config, code):
    probe = ProbeIo()
    with fenced(opened(tmp_path / "s", config, probe, **LATE), errors.SyncFailed) as store:
        store.put("T", b"0")
        probe.fail("fdatasync", 1, code, path="/commitlog/")
        for _ in range(2):
            with pytest.raises(errors.SyncFailed):
                store.flush()
            with pytest.raises(errors.SyncFailed):
                store.put("T", b"1", wait=True)


def test_a_consumer_of_a_batch_gets_it_out_of_the_pool(tmp_path):
    probe = ProbeIo()
    with fenced(opened(tmp_path / "s", CONFIGS[0], probe, **LATE)) as store:
        probe.fail(WRITES, 1, errno.EIO, path="/commitlog/", sticky=True)
        done = store.put_many("T", [{"body": b"%d" % n} for n in range(5)])
        assert done.status is PutStatus.PUT_OK
        with pytest.raises(errors.WriteFailed):
            store.flush()
        assert [bytes(m.body) for m in store.get("T", 0, 0)] == [b"%d" % n for n in range(5)]
        assert [bytes(m.body) for m in store.get("T", 0, 3, 1)] == [b"3"]
        assert store.stats()["unwritten_messages"] == 5

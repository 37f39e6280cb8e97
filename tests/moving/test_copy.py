"""Copies of messages: what goes and what does not, each exactly once, wherever it is broken off; the source never changes."""
import itertools
import shutil

import pytest

from rmq_store import MessageStore, copy_messages, errors, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.backup import source
from rmq_store.upkeep.moving import journal, messages, settings
from tests import golden_store
from tests.integrity.test_golden_silent import content
from tests.moving.conftest import SMALL, got, rows

READABLE = [name for name in golden_store.cases() if not name.endswith(("shortfile", "torncrc"))]


class Died(Exception):
    pass


def as_stored(root):
    """All that --as-is keeps of each record."""
    with MessageStore.open(root, readonly=True) as store:
        return [(m.topic, m.queue_id, m.queue_offset, m.store_timestamp, m.born_timestamp, m.born_host, m.store_host, m.flag,
                 m.sys_flag, m.reconsume_times, m.prepared_transaction_offset, bytes(m.body),
                 {k: v for k, v in m.properties.items() if k != "__CRC32#"})
                for kind, _, _, m in store.log_records() if kind == "msg"]


# ---- as new messages

def test_the_loop_that_was_documented_copied_delayed_messages_twice_and_this_does_not(mixed, tmp_path):
    before = content(mixed)
    result = copy_messages(mixed, tmp_path / "to", **SMALL)
    assert content(mixed) == before
    delivered = [b"delayed %d" % i for i in range(17)]
    assert got(tmp_path / "to", "T", 2) == delivered
    waiting = [b for t, q, b in rows(tmp_path / "to") if t == "SCHEDULE_TOPIC_XXXX"]
    assert waiting == [b"waits %d" % i for i in range(3)]
    assert result.left == {"delivered": 17, "retry": 1, "system": 1, "transaction": 2}
    assert got(tmp_path / "to", "T", 0)[-1] == b"committed" and got(tmp_path / "to", "%DLQ%G") == [b"dead"]
    assert result.copied == result.total == len(rows(tmp_path / "to")) == 40 + 17 + 3 + 2 + 2
    assert list(verify(tmp_path / "to")) == []


def test_messages_are_new_ones_and_keep_what_a_producer_gave_them(mixed, tmp_path):
    with MessageStore.open(tmp_path / "to", **SMALL) as store:
        store.put("T", b"was here")
    copy_messages(mixed, tmp_path / "to")
    with MessageStore.open(tmp_path / "to", readonly=True) as store, MessageStore.open(mixed, readonly=True) as old:
        assert [bytes(m.body) for m in store.scan("T", 0)][:2] == [b"was here", b"plain 0"]
        (new,), (was,) = store.get("Bytes", 0, 0).messages, old.get("Bytes", 0, 0).messages
        assert bytes(new.body) == bytes(range(256)) and new.properties == was.properties == {"ä": "ö"}
        assert (new.flag, new.reconsume_times, new.born_host, new.born_timestamp) == (7, 3, "[::1]:5", 12345)
        assert new.store_timestamp >= was.store_timestamp
        committed = list(store.scan("T", 0))[-1]
        assert committed.sys_flag & 0xC == 0 and committed.prepared_transaction_offset == 0
        assert store.offsets.query("G", "T", 0) == -1
        del new, was, committed


def test_waiting_messages_are_delivered_by_the_target_alone(mixed, tmp_path):
    copy_messages(mixed, tmp_path / "to", **SMALL)
    with MessageStore.open(tmp_path / "to", delay_levels="1s 1s", **SMALL) as store:
        at = 17
        while at < 20:
            result = store.get("T", 2, at, wait=20)
            at += len(result)
        del result
    assert got(tmp_path / "to", "T", 2)[17:] == [b"waits %d" % i for i in range(3)]


def test_what_waits_in_an_open_source_is_left_to_it_and_taken_once_it_is_closed(tmp_path):
    with MessageStore.open(tmp_path / "from", delay_levels="1h", **SMALL) as store:
        store.put("T", b"one")
        store.put("T", b"waits", delay_level=1)
        store.put("T", b"two")
        store.flush()
        first = copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
        assert (first.copied, first.left) == (2, {"waiting": 1})
        store.put("T", b"three")
    second = copy_messages(tmp_path / "from", tmp_path / "to")
    assert (second.copied, second.left, second.total) == (2, {}, 4)
    assert [b for _, _, b in rows(tmp_path / "to")] == [b"one", b"two", b"three", b"waits"]
    assert copy_messages(tmp_path / "from", tmp_path / "to").copied == 0


def test_a_copy_begun_while_nobody_had_the_source_is_not_ended_while_somebody_has(mixed, tmp_path, monkeypatch):
    small_pieces(monkeypatch)
    die_at(monkeypatch, 3)
    with pytest.raises(Died):
        copy_messages(mixed, tmp_path / "to", **SMALL)
    monkeypatch.setattr(journal, "_step", lambda name: None)
    with MessageStore.open(mixed, _services=False, **SMALL), pytest.raises(errors.StoreStateError, match="close it"):
        copy_messages(mixed, tmp_path / "to")
    copy_messages(mixed, tmp_path / "to")
    assert len(rows(tmp_path / "to")) == 64


def test_topics_and_times(mixed, tmp_path):
    result = copy_messages(mixed, tmp_path / "a", topics=["%RETRY%G", "Nobody"], **SMALL)
    assert [b for _, _, b in rows(tmp_path / "a")] == [b"retry"] and result.unseen == ["Nobody"]
    result = copy_messages(mixed, tmp_path / "b", topics=["T"], **SMALL)
    assert result.copied == 40 + 17 + 3 + 1 and result.left == {"delivered": 17, "transaction": 2}
    with MessageStore.open(mixed, readonly=True) as store:
        times = [m.store_timestamp for k, _, _, m in store.log_records() if k == "msg"]
    assert copy_messages(mixed, tmp_path / "c", as_is=True, since=times[-1], **SMALL).copied == times.count(times[-1])
    assert copy_messages(mixed, tmp_path / "d", as_is=True, until=times[0], **SMALL).copied == times.count(times[0])


# ---- as they are

@pytest.mark.parametrize("case", golden_store.sampled(READABLE))
def test_stores_of_rocketmq_as_they_are(golden, tmp_path, case):
    source = golden(case).store
    before = content(source)
    copy_messages(source, tmp_path / "to", as_is=True)
    assert content(source) == before
    expected = [r[:8] + (r[8],) + r[9:] for r in as_stored(source)]
    assert as_stored(tmp_path / "to") == expected
    assert [f for f in verify(tmp_path / "to") if f.severity != "note"] == []


def test_groups_delays_and_transactions_go_on_where_they_were(mixed, tmp_path):
    copied = copy_messages(mixed, tmp_path / "to", as_is=True)
    assert as_stored(tmp_path / "to") == as_stored(mixed)
    assert copied.left == {} and {"consumerOffset.json", "delayOffset.json"} <= set(copied.settings)
    with MessageStore.open(mixed, readonly=True) as old, MessageStore.open(tmp_path / "to", readonly=True) as new:
        assert new.offsets.table() == old.offsets.table() != {}
        assert new.delay_levels() == old.delay_levels() and sum(x.waiting for x in new.delay_levels()) == 3
        assert [m.msg_id for m in new.scan()] == [m.msg_id for m in old.scan()]     # nothing was left out before them
        assert new.options.segment_size_bytes == 1 << 16


def test_queues_that_do_not_begin_at_zero(tmp_path):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        for i in range(3000):
            store.put("T", b"%d" % i * 20, queue_id=i % 3)
        store.put("Idle", b"x")
        store.flush()
        store.wait_dispatched(10)
        assert store.clean(0, files_max=2, pace_ms=0).log_files == 2
        lowest = [store.min_offset("T", q) for q in range(3)]
        offsets = [m.msg_id for m in store.scan()]
    assert min(lowest) > 0
    copy_messages(tmp_path / "from", tmp_path / "to", as_is=True)
    for _ in range(2):          # as it was made, and rebuilt from the log alone
        with MessageStore.open(tmp_path / "to", **SMALL) as store:
            assert [store.min_offset("T", q) for q in range(3)] == lowest
            assert [m.msg_id for m in store.scan()] == offsets
            assert next(m.queue_offset for m in store.get("T", 1, lowest[1])) == lowest[1]
        assert [f for f in verify(tmp_path / "to") if f.severity != "note"] == []
        shutil.rmtree(tmp_path / "to" / "consumequeue")


def test_since_keeps_queue_offsets_too(tmp_path):
    io = ProbeIo(keep_bytes=False)
    io.set_clock(1_000_000, 1)
    with MessageStore.open(tmp_path / "from", _io=io, **SMALL) as store:
        puts = [store.put("T", b"%d" % i) for i in range(1000)]
    copy_messages(tmp_path / "from", tmp_path / "to", as_is=True, since=puts[700].store_timestamp)
    with MessageStore.open(tmp_path / "to", **SMALL) as store:
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (700, 1000)
        assert [bytes(m.body) for m in store.scan("T", 0)] == [b"%d" % i for i in range(700, 1000)]
    assert [f for f in verify(tmp_path / "to") if f.severity != "note"] == []


def test_again_takes_what_has_come_since(tmp_path):
    for round_ in range(3):
        with MessageStore.open(tmp_path / "from", **SMALL) as store:
            for i in range(100):
                store.put("T", b"%d %d" % (round_, i))
            store.offsets.commit("G", "T", 0, 50 * round_)
        for target, as_is in (("new", False), ("is", True)):
            assert copy_messages(tmp_path / "from", tmp_path / target, as_is=as_is).copied == 100
    assert rows(tmp_path / "new") == rows(tmp_path / "is") == rows(tmp_path / "from")
    with MessageStore.open(tmp_path / "is", readonly=True) as store:
        assert store.offsets.query("G", "T", 0) == 100


def test_offsets_that_were_changed_in_the_target_stay(tmp_path):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"x")
        store.offsets.commit("G", "T", 0, 1)
    copy_messages(tmp_path / "from", tmp_path / "to", as_is=True)
    with MessageStore.open(tmp_path / "to", **SMALL) as store:
        store.offsets.commit("H", "T", 0, 1)
    assert copy_messages(tmp_path / "from", tmp_path / "to", as_is=True).kept == ["consumerOffset.json"]
    with MessageStore.open(tmp_path / "to", readonly=True) as store:
        assert store.offsets.groups() == ["G", "H"]


def test_offsets_that_a_call_wrote_before_it_was_broken_off_are_not_taken_for_somebody_elses(tmp_path, monkeypatch):
    def commit(offset):
        with MessageStore.open(tmp_path / "from", **SMALL) as store:
            store.put("T", b"x")
            store.offsets.commit("G", "T", 0, offset)

    real = settings.Settings.apply

    def die_behind(self, *arguments):
        real(self, *arguments)
        raise Died

    commit(1)
    copy_messages(tmp_path / "from", tmp_path / "to", as_is=True)
    commit(2)
    monkeypatch.setattr(settings.Settings, "apply", die_behind)
    with pytest.raises(Died):
        copy_messages(tmp_path / "from", tmp_path / "to", as_is=True)
    monkeypatch.setattr(settings.Settings, "apply", real)
    commit(3)
    assert copy_messages(tmp_path / "from", tmp_path / "to", as_is=True).kept == []
    with MessageStore.open(tmp_path / "to", readonly=True) as store:
        assert store.offsets.query("G", "T", 0) == 3


def test_as_they_are_only_into_a_store_that_nobody_puts_to(tmp_path):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"one")
    with MessageStore.open(tmp_path / "full", **SMALL) as store:
        store.put("U", b"other")
    with pytest.raises(errors.StoreStateError, match="has messages already"):
        copy_messages(tmp_path / "from", tmp_path / "full", as_is=True)
    copy_messages(tmp_path / "from", tmp_path / "to", as_is=True)
    with MessageStore.open(tmp_path / "to", **SMALL) as store:
        store.put("T", b"in between")
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"two")
    with pytest.raises(errors.StoreStateError, match="does not continue this queue"):
        copy_messages(tmp_path / "from", tmp_path / "to", as_is=True)
    assert [b for _, _, b in rows(tmp_path / "to")] == [b"one", b"in between"]


# ---- broken off

def small_pieces(monkeypatch, rows_=7):
    monkeypatch.setattr(source, "ROWS", rows_)
    monkeypatch.setattr(messages, "PIECE", 1)


def die_at(monkeypatch, nth):
    count = itertools.count(1)

    def step(name):
        if next(count) == nth:
            raise Died

    monkeypatch.setattr(journal, "_step", step)


@pytest.mark.parametrize("as_is", [False, True])
def test_killed_at_every_call_and_given_again(mixed, tmp_path, memory_disk, monkeypatch, as_is):
    """The process dies at one call after the other: what is on the disk then is the target's image, and the call is given
    again, and dies once more, before it is given for good."""
    small_pieces(monkeypatch)
    copy_messages(mixed, memory_disk / "whole", as_is=as_is, **SMALL)
    expected = rows(memory_disk / "whole")
    assert len(expected) > 60
    seen = 0
    for nth in range(1, 400, 7 if as_is else 5):
        to = memory_disk / f"to{nth}"
        died = [killed(mixed, to, as_is, n) for n in (nth, nth // 2 + 1)]
        copy_messages(mixed, to, as_is=as_is, **SMALL)
        assert rows(to) == expected, nth
        assert [f for f in verify(to) if f.severity != "note"] == []
        seen += died[0]
        shutil.rmtree(to)
        if not died[0]:
            break
    assert seen > 10


def killed(source, to, as_is, nth):
    """Runs a copy whose process dies at the nth call that changes something. Whether it came so far."""
    io = ProbeIo(keep_bytes=False)
    io.freeze("mutate", nth)
    try:
        copy_messages(source, to, as_is=as_is, _io=io, **SMALL)
    except (errors.RmqStoreError, OSError, BufferError):
        pass
    return io.frozen


def test_others_put_between_two_calls(mixed, tmp_path, monkeypatch):
    small_pieces(monkeypatch)
    expected = None
    for nth in range(1, 9):
        to = tmp_path / f"to{nth}"
        die_at(monkeypatch, nth)
        with pytest.raises(Died):
            copy_messages(mixed, to, **SMALL)
        for again in range(2):
            with MessageStore.open(to, _services=False, **SMALL) as store:
                store.put("Other", b"between %d" % again)
            die_at(monkeypatch, 1)
            with pytest.raises(Died):
                copy_messages(mixed, to, **SMALL)
        monkeypatch.setattr(journal, "_step", lambda name: None)
        copy_messages(mixed, to, **SMALL)
        found = rows(to)
        assert sum(t == "Other" for t, _, _ in found) == 2
        mine = [row for row in found if row[0] != "Other"]
        expected = expected or mine
        assert mine == expected and len(mine) == 64


def test_a_target_that_was_cleaned_or_has_lost_something_is_refused(tmp_path, monkeypatch):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        for i in range(3000):
            store.put("T", b"%d" % i * 20)
    small_pieces(monkeypatch, 1000)
    die_at(monkeypatch, 2)
    with pytest.raises(Died):
        copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
    shutil.copytree(tmp_path / "to", tmp_path / "older")
    die_at(monkeypatch, 3)
    with pytest.raises(Died):
        copy_messages(tmp_path / "from", tmp_path / "to")
    monkeypatch.setattr(journal, "_step", lambda name: None)
    shutil.rmtree(tmp_path / "older" / ".moving")
    shutil.copytree(tmp_path / "to" / ".moving", tmp_path / "older" / ".moving")
    with pytest.raises(errors.StoreStateError, match="lost some"):
        copy_messages(tmp_path / "from", tmp_path / "older")
    with MessageStore.open(tmp_path / "to", **SMALL) as store:
        for i in range(2000):
            store.put("U", b"%d" % i * 20)
        store.flush()
        store.wait_dispatched(10)
        store.clean(0, pace_ms=0)
    with pytest.raises(errors.StoreStateError, match="was cleaned"):
        copy_messages(tmp_path / "from", tmp_path / "to")

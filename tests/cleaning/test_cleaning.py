"""Cleaning of an open store: what goes by the clock, by the disk and by hand; what stays; what is said; what comes back.

Cases CLN-01 to CLN-03 are DefaultMessageStoreCleanFilesTest's, with one message a commit-log file as there.
"""
import gc
import logging
import os
import threading

import pytest

from rmq_store import MessageStore, errors
from rmq_store.services.cleaning.cleaner import Lost
from rmq_store.status import GetStatus, PutStatus
from tests.cleaning.aged import BODY, SMALL


def events(caplog, name):
    return [r.fields for r in caplog.records if getattr(r, "event", "") == name]


# ---- by the clock and the disk

def test_cln_01_the_hour_deletes_ten_old_files_a_round(aged):
    a = aged(files=55, old=15, hour=4, retention_hours=1)
    first = a.tick()
    assert (first.log_files, first.min_log_offset) == (10, 10 * 8192)
    # 5 entries a queue file, 7 keys an index file: those that lead below the log's beginning, and only those
    assert (first.queue_files, first.index_files) == (10 // 5, 10 // 7)
    second = a.tick()
    assert (second.log_files, second.min_log_offset) == (5, 15 * 8192)
    assert (first.queue_files + second.queue_files, first.index_files + second.index_files) == (15 // 5, 15 // 7)
    assert a.tick().log_files == 0
    assert a.names()[0] == f"{15 * 8192:020d}" and a.numbers() == list(range(15, 55))
    assert (a.store.min_offset("T", 0), a.store.max_offset("T", 0)) == (15, 55)


class Stop(threading.Event):
    """What the control thread waits on between two files: notes how long, and is set at the n-th time."""

    def __init__(self, nth=None):
        super().__init__()
        self.nth, self.waits = nth, []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        if len(self.waits) == self.nth:
            self.set()
        return self.is_set()


def test_a_round_is_paced_and_ends_when_the_store_closes(aged):
    """Upstream's deleteCommitLogFilesInterval and deleteConsumeQueueFilesInterval."""
    a = aged(files=24, old=20, hour=4, retention_hours=1, queues=2, clean_pace_ms=100, clean_queue_pace_ms=70)
    stop = Stop(3)
    assert a.tick(stop).log_files == 3 and stop.waits == [0.1] * 3
    stop = Stop()
    assert a.tick(stop).log_files == 10 and stop.waits == [0.1] * 9 + [0.07] * 2


def test_cln_02_the_disk_deletes_old_files_at_any_hour(aged):
    a = aged(files=55, old=15, hour=12, used=76, retention_hours=1)
    assert [a.tick().log_files for _ in range(3)] == [10, 5, 0]


def test_cln_03_a_full_disk_deletes_whatever_the_age(aged):
    a = aged(files=35, old=0, hour=12, used=86, retention_hours=72)
    assert [a.tick().log_files for _ in range(5)] == [10, 10, 10, 4, 0]     # the newest stays
    assert a.numbers() == [34]


def test_not_the_hour_and_room_on_the_disk(aged):
    a = aged(old=5, hour=3, used=75, retention_hours=1)
    assert a.tick().log_files == 0 and int(a.names()[0]) == 0


def test_deletion_stops_at_the_first_young_file(aged):
    a = aged(old=12, hour=4, retention_hours=1)
    a.age(f"{3 * 8192:020d}", 0)
    assert a.tick().log_files == 3


def test_nothing_goes_by_itself_unless_asked_for(aged):
    a = aged(old=12, hour=4, used=100)
    assert not a.store._cleaner.wanted(a.store.options) and a.store.options.disk_full_pct is None
    assert a.tick().log_files == 0 and int(a.names()[0]) == 0
    assert a.store.put("T", b"x").status == 0


def test_the_control_thread_cleans(tmp_path):
    with MessageStore.open(tmp_path / "s", retention_hours=0, retention_hours_of_day=range(24), disk_full_pct=100,
                           **(SMALL | {"clean_interval_ms": 1})) as store:
        for _ in range(4):
            store.put("T", BODY)
        while store.min_log_offset < 3 * 8192:
            store.flush()
    assert len(os.listdir(tmp_path / "s" / "commitlog")) == 1


def test_a_retention_that_is_given_while_the_store_is_open(tmp_path):
    with MessageStore.open(tmp_path / "s", **(SMALL | {"clean_interval_ms": 1})) as store:
        for _ in range(4):
            store.put("T", BODY)
        store.reconfigure(fileReservedTime=0, deleteWhen=";".join(f"{hour:02d}" for hour in range(24)))
        assert (store.options.disk_full_pct, store.options.origin("disk_full_pct")) == (90, "derived")
        store.reconfigure(disk_full_pct=100)
        while store.min_log_offset < 3 * 8192:
            store.flush()


def test_a_limit_that_is_taken_back_while_puts_are_refused(aged, caplog):
    caplog.set_level(logging.INFO, logger="rmq_store")
    a = aged(files=3, hour=12, used=91, retention_hours=72, clean_forced=False)
    a.tick()
    assert a.store.disk_full
    a.store.reconfigure(retention_hours=None)
    assert a.store.options.disk_full_pct is None
    a.tick()
    assert not a.store.disk_full and len(events(caplog, "DISK_LIMIT_GONE")) == 1
    assert a.store.put("T", b"x").status == 0


def test_rules_that_delete_nothing_are_said_to(tmp_path, caplog):
    with MessageStore.open(tmp_path / "s", deleteWhen="03", **SMALL):
        pass
    assert "have no effect here: retention_hours_of_day (without retention_hours" in caplog.text


# ---- what stays

def test_a_file_under_a_view_waits_and_the_view_stays_good(aged, caplog):
    a = aged(old=3, hour=4, retention_hours=1)
    view = a.store.get("T", 0, 1, 1)[0]
    done = a.tick()
    held = f"{8192:020d}"
    assert done.log_files == 1 and done.held.endswith(held) and held in a.names()
    # the log begins behind it all the same: nobody new comes
    assert a.store.min_log_offset == 2 * 8192 and a.numbers() == list(range(2, 12))
    assert a.tick().log_files == 0 and len(events(caplog, "LOG_FILE_HELD")) == 1
    assert bytes(view.body).endswith(b"   1")
    del view
    gc.collect()
    assert a.tick().log_files == 2 and held not in a.names()


def test_a_hanged_file_goes_after_its_time_and_its_views_stay_good(aged, caplog):
    a = aged(old=3, hour=4, retention_hours=1, clean_hanged_ms=0)
    view = a.store.get("T", 0, 0, 1)[0]
    assert a.tick().log_files == 3 and a.names()[0] == f"{3 * 8192:020d}"
    assert [e["users"] for e in events(caplog, "LOG_FILE_HANGED")] == [1]
    assert bytes(view.body) == BODY[:-4] + b"   0"


def test_it_is_hanged_after_two_minutes_and_not_before(aged, monkeypatch):
    """Upstream's destroyMapedFileIntervalForcibly, 120 s, by the monotonic clock."""
    a = aged(old=3, hour=4, retention_hours=1)
    view = a.store.get("T", 0, 0, 1)[0]
    assert a.tick().held
    since = a.store._cleaner._held.since_ns
    for ms, gone in ((0, 0), (119_999, 0), (120_000, 3)):
        monkeypatch.setattr(a.store._cleaner._files, "mono_ns", lambda ms=ms: since + ms * 1_000_000)
        assert a.tick().log_files == gone, ms
    assert bytes(view.body) == BODY[:-4] + b"   0"


@pytest.mark.parametrize("more", [{}, {"disk_full_pct": 95}])
def test_a_withdrawn_file_goes_although_nothing_is_to_be_deleted_any_more(aged, more):
    a = aged(old=3, hour=4, retention_hours=1)
    view = a.store.get("T", 0, 0, 1)[0]
    assert a.tick().held
    a.store.reconfigure(retention_hours=None, **more)
    assert a.tick().held and view.queue_offset == 0
    del view
    gc.collect()
    done = a.tick()
    assert (done.log_files, done.held) == (1, "") and a.names()[0] == f"{8192:020d}"
    assert a.tick().log_files == 0 and a.numbers() == list(range(1, 12))


def test_a_withdrawn_file_is_back_after_reopening(aged):
    a = aged(old=1, hour=4, retention_hours=1)
    view = a.store.get("T", 0, 0, 1)[0]
    assert a.tick().held
    with pytest.raises(errors.ViewsAlive):
        a.store.close(strict=True)
    del view
    with MessageStore.open(a.root, **SMALL) as again:
        assert again.min_log_offset == 0 and again.min_offset("T", 0) == 0


def test_closing_deletes_a_withdrawn_file_that_nobody_looks_at(aged):
    a = aged(old=1, hour=4, retention_hours=1)
    view = a.store.get("T", 0, 0, 1)[0]
    assert a.tick().held
    del view
    a.store.close()
    assert a.names()[0] == f"{8192:020d}"


def test_what_is_not_flushed_and_dispatched_stays(aged):
    a = aged(files=0, hour=4, retention_hours=0, flush_interval_ms=3_600_000, flush_interval_max_ms=86_400_000)
    for _ in range(5):
        a.store.put("T", BODY)
    assert a.store.wait_dispatched(30)
    for name in a.names():
        a.age(name, 0)
    assert a.tick().log_files == 0
    a.store.flush()
    assert a.tick().log_files == 4


# ---- by hand

def test_by_hand_at_any_hour(aged):
    a = aged(old=5, hour=12)
    a.probe.set_clock(a.now)
    assert a.store.cleanable(3) == [] and a.store.cleanable(1) == [i * 8192 for i in range(5)]
    assert a.store.cleanable(1, files_max=2) == [0, 8192] and len(a.store.cleanable(0)) == 11
    a.probe.set_clock(None)
    with pytest.raises(ValueError, match="hours is None"):
        a.clean()
    for bad in (-1, float("nan"), float("inf"), 1_000_001, "72", True):
        with pytest.raises(ValueError, match=f"hours is {bad!r}: give the age"):
            a.clean(bad)
        with pytest.raises(ValueError, match="hours is"):
            a.store.cleanable(bad)
    for name in ("files_max", "pace_ms"):
        for bad in (-1, 1.5, "1", True):
            with pytest.raises(ValueError, match=f"{name} is {bad!r}: give"):
                a.clean(1, **{name: bad})
    assert int(a.names()[0]) == 0
    assert a.clean(1, files_max=2).log_files == 2
    assert a.clean(1).log_files == 3
    assert a.clean(0).log_files == 6 and a.numbers() == [11]


def test_by_hand_not_on_a_readonly_store(aged):
    a = aged(old=5)
    a.store.close()
    with MessageStore.open(a.root, readonly=True, **SMALL) as store, pytest.raises(errors.StoreNotWriteable):
        store.clean(0)


# ---- readers, queues and index afterwards

def test_readers_find_the_new_beginning(aged):
    a = aged(files=24, old=13, hour=4, retention_hours=1, queues=2, clean_files_max=99)
    assert a.tick().log_files == 13
    for queue, low in ((0, 7), (1, 6)):
        assert a.store.min_offset("T", queue) == low
        result = a.store.get("T", queue, 0)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
        result = a.store.get("T", queue, low, 1)
        assert result.status == GetStatus.FOUND and result[0].queue_offset == low
    assert a.store.message_at(0) is None
    assert a.store.earliest_time() == a.store.message_at(13 * 8192).store_timestamp
    assert [len(a.store.query_key("T", f"key{i}")) for i in range(24)] == [0] * 13 + [1] * 11
    assert [m.keys for m in a.store.scan()] == [f"key{i}" for i in range(13, 24)]
    assert [o for _, o, _, m in a.store.log_records(0) if m] == [i * 8192 for i in range(13, 24)]
    for boundary in ("lower", "upper", "nearest"):
        assert 0 <= a.store.offset_by_time("T", 0, 0, boundary=boundary) <= 12


def test_a_walk_that_is_overtaken_goes_on_where_the_log_begins(aged):
    a = aged(old=9, hour=4, retention_hours=1, clean_hanged_ms=0)
    walk = a.store.scan()
    assert next(walk).keys == "key0"
    assert a.tick().log_files == 9      # the walk looks at the first of them
    assert [m.keys for m in walk] == ["key9", "key10", "key11"]
    walk = a.store.scan("T", 0, begin=0)
    assert [m.keys for m in walk] == ["key9", "key10", "key11"]


def test_a_queue_all_of_whose_messages_went_keeps_its_offset(aged):
    a = aged(files=3)
    for _ in range(8):
        a.store.put("other", BODY)
    a.settle()
    assert a.clean(0).log_files == 10
    assert (a.store.min_offset("T", 0), a.store.max_offset("T", 0)) == (3, 3)
    assert a.store.get("T", 0, 0).status == GetStatus.OFFSET_TOO_SMALL
    assert a.store.put("T", b"next").queue_offset == 3


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_reopened_the_store_begins_where_it_was_cleaned(aged, end, compat):
    a = aged(files=24, old=13, hour=4, retention_hours=1, queues=2, clean_files_max=99, compat=compat)
    a.tick()
    if end == "killed":
        a.probe.freeze()
    a.store.close()
    with MessageStore.open(a.root, compat=compat, **SMALL) as store:
        assert store.min_log_offset == 13 * 8192
        assert [(store.min_offset("T", q), store.max_offset("T", q)) for q in (0, 1)] == [(7, 12), (6, 12)]
        for queue, low in ((0, 14), (1, 13)):
            assert [m.keys for m in store.scan("T", queue)] == [f"key{i}" for i in range(low, 24, 2)]
        # After a crash a key may be found twice, as with upstream's recovery.
        assert [len(store.query_key("T", f"key{i}")) > 0 for i in range(24)] == [False] * 13 + [True] * 11
        assert store.put("T", b"x").queue_offset == 12


# ---- puts

def test_a_full_disk_refuses_puts_and_heals(aged, caplog):
    caplog.set_level(logging.INFO, logger="rmq_store")
    a = aged(files=3, hour=12, used=91, retention_hours=72, clean_forced=False)
    a.tick()
    assert a.store.disk_full
    puts = [lambda: a.store.put("T", b"x"), lambda: a.store.put_many("T", [b"x"]), lambda: a.store.put_async("T", b"x")]
    for put in puts:
        with pytest.raises(errors.ServiceNotAvailable, match="fuller than disk_full_pct") as caught:
            put()
        assert caught.value.status == PutStatus.SERVICE_NOT_AVAILABLE
    a.used = 90
    a.tick()
    assert a.store.disk_full            # as upstream: only below the lower limit
    assert a.numbers() == [0, 1, 2]     # reading goes on
    a.used = 85
    a.tick()
    assert a.store.put("T", b"x").status == PutStatus.PUT_OK
    assert [len(events(caplog, e)) for e in ("DISK_FULL_PERCENT", "DISK_PERCENT_BACK")] == [1, 1]


def test_puts_are_taken_again_as_soon_as_the_limit_is_raised(aged):
    """As the error tells who was refused."""
    a = aged(files=3, hour=12, used=93, retention_hours=72, clean_forced=False)
    a.tick()
    with pytest.raises(errors.ServiceNotAvailable, match=r"\(90 %\).*or raise the limit.*at or below 85 % \(disk_force_pct\)"):
        a.store.put("T", b"x")
    a.store.reconfigure(disk_full_pct=92)
    a.tick()
    assert a.store.disk_full            # not by enough
    a.store.reconfigure(disk_full_pct=93)
    a.tick()
    assert a.store.put("T", b"x").status == PutStatus.PUT_OK
    a.store.reconfigure(disk_full_pct=90)
    a.tick()
    a.used = 89
    a.store.reconfigure(disk_full_pct=88)
    a.tick()
    a.store.reconfigure(disk_full_pct=87)
    a.tick()
    assert a.store.disk_full            # a limit that is lowered lets nobody in
    a.store.reconfigure(disk_full_pct=89)
    a.tick()
    assert not a.store.disk_full


def test_a_limit_for_puts_below_the_one_that_forces(aged):
    a = aged(files=3, hour=12, used=50, retention_hours=72, clean_forced=False, disk_full_pct=40)
    a.tick()
    with pytest.raises(errors.ServiceNotAvailable, match=r"at or below 40 % \(disk_force_pct is 85, and the lower limit"):
        a.store.put("T", b"x")
    a.used = 41
    a.tick()
    assert a.store.disk_full
    a.used = 40
    a.tick()
    assert not a.store.disk_full


def test_forced_cleaning_makes_the_room_that_puts_need(aged):
    a = aged(files=6, hour=12, used=95, retention_hours=72)
    assert a.tick().log_files == 5 and a.store.disk_full
    a.used = 50
    a.tick()
    assert a.store.put("T", b"x").status == PutStatus.PUT_OK


# ---- who had not consumed what went

def test_unconsumed_messages_are_named_and_counted(aged, caplog):
    a = aged(files=12, old=6, hour=4, retention_hours=1, queues=2)
    a.store.offsets.commit("slow", "T", 0, 1)       # queue 0 loses 0, 1, 2; queue 1 loses 0, 1, 2
    a.store.offsets.commit("slow", "T", 1, 3)
    a.store.offsets.commit("fast", "T", 0, 6)
    a.store.offsets.commit("fast", "T", 1, 6)
    a.store.offsets.commit("elsewhere", "U", 0, 0)
    done = a.tick()
    assert done.log_files == 6
    lost = [(x.group, x.queue_id, x.begin, x.end) for x in done.lost]
    assert lost == [("slow", 0, 1, 2), ("slow", 0, 2, 3)]       # told file by file
    assert sum(x.count for x in done.lost) == 2
    assert Lost("slow", "T", 0, 1, 2) in done.lost
    assert [(e["group"], e["topic"], e["queue_id"], e["count"]) for e in events(caplog, "UNCONSUMED_DELETED")] \
        == [("slow", "T", 0, 1)] * 2


def test_nobody_is_named_where_nobody_consumed(aged, caplog):
    a = aged(files=6, old=3, hour=4, retention_hours=1)
    assert a.tick().log_files == 3 and not events(caplog, "UNCONSUMED_DELETED")
    assert [path.name for path in (a.root / "config").iterdir()] == ["storeOptions.json"]

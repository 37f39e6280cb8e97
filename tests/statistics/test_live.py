"""The file of live figures: it says what stats() says, it is whole at any moment, and its reader believes no old one."""
import errno
import json
import threading
import time

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.statistics.live import COUNTERS, live_path, read_live

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False}
HOUR_MS = 3_600_000         # by hand, but for the first time


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", stats_file_interval_ms=HOUR_MS, **SMALL) as s:
        written(s)
        yield s


def written(store):
    """The figures, once the thread has written its first file."""
    while (found := read_live(store.path)[0]) is None:
        time.sleep(0.001)
    return found


def again(store):
    """Written once more, by this thread."""
    assert store._publisher._write()
    figures, age = read_live(store.path)
    assert figures is not None, age
    return figures


def test_it_says_what_stats_says(store):
    for i in range(10):
        store.put("T", b"x" * i, wait=True)
    assert store.wait_dispatched(30) and len(store.get("T", 0, 0)) == 10
    store.offsets.commit("G", "T", 0, 4)
    figures = again(store)
    stats = store.stats()
    assert figures["stats"] | {"flushes": 0, "durations": 0} == stats | {"flushes": 0, "durations": 0}
    assert figures["stats"]["durations"]["get"] == stats["durations"]["get"]
    assert figures["groups"] == {"G": {"behind": 6, "lost": 0}} and figures["delayed"] == 0
    assert figures["pid"] > 0 and figures["interval_ms"] == HOUR_MS and set(figures["rates"]) == {
        "puts", "found", "missed", "transferred"}


def test_recent_is_since_the_last_time(store):
    for count in (3, 0, 5):
        for _ in range(count):
            store.put("T", b"x", wait=True)
        recent = again(store)["recent"]
        assert recent["puts"] == count and set(recent) == {*COUNTERS, "seconds", "durations"}
        assert recent["durations"]["flush"]["count"] == recent["flushes"] >= count and recent["seconds"] > 0
    store.put("T", b"x", delay_level=18)
    assert store.wait_dispatched(30) and again(store)["delayed"] == 1


def test_only_where_asked_for_and_only_by_who_writes(tmp_path, store):
    with MessageStore.open(store.path, readonly=True, stats_file_interval_ms=100, **SMALL) as reader:
        assert reader._publisher is None
    with MessageStore.open(tmp_path / "plain", **SMALL) as plain:
        assert plain._publisher is None and not any("stats" in t.name for t in threading.enumerate()
                                                    if t is not store._publisher.thread)
        figures, why = read_live(plain.path)
        assert figures is None and "stats_file_interval_ms" in why
        assert not (tmp_path / "plain" / ".stats.json").exists()


def test_the_thread_goes_on_by_itself(tmp_path):
    with MessageStore.open(tmp_path / "s", stats_file_interval_ms=100, **SMALL) as s:
        written(s)
        s.put("T", b"x")
        while written(s)["stats"]["puts"] == 0:
            time.sleep(0.001)


def test_a_store_that_is_open_without_figures_is_not_called_closed(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        left, why = read_live(store.path)
    assert left is None and "the process that has the store open writes none: open it with" in why


def test_close_removes_it_and_a_kill_leaves_it(tmp_path):
    for end in ("killed", "closed"):
        probe = ProbeIo(keep_bytes=False)
        store = MessageStore.open(tmp_path / "s", stats_file_interval_ms=HOUR_MS, _io=probe, **SMALL)
        figures = written(store)
        if end == "killed":
            probe.freeze()
        store.close()
        left, why = read_live(store.path)
        assert (left == figures) if end == "killed" else (left is None and "no process has the store open" in why)
    assert not list((tmp_path / "s").glob(".stats*"))


def test_old_figures_are_no_live_ones(store):
    figures = written(store)
    now, slack = figures["written_ms"], 3 * HOUR_MS + 2000
    for ms in (0, 500, slack, -slack):
        assert read_live(store.path, now + ms)[0] == figures
    for ms in (slack + 1, -slack - 1):
        found, why = read_live(store.path, now + ms)
        assert found is None and str(figures["pid"]) in why and f"{ms / 1000:.0f} s old" in why


@pytest.mark.parametrize(("text", "said"), [("{", "damaged"), ("[]", "damaged"), ("{}", "damaged"), ("", "damaged"),
                                            ('{"format":1,"pid":1,"written_ms":0,"interval_ms":1}', "damaged"),
                                            ('{"format":2,"pid":1,"written_ms":0,"interval_ms":1}', "format 2"),
                                            (b"\xff\xfe", "damaged")])
def test_what_is_no_such_file_is_said(tmp_path, text, said):
    with open(live_path(str(tmp_path)), "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    figures, why = read_live(str(tmp_path))
    assert figures is None and said in why and ".stats.json" in why


def test_a_directory_in_its_place(tmp_path, caplog):
    (tmp_path / "s" / ".stats.json").mkdir(parents=True)
    with MessageStore.open(tmp_path / "s", stats_file_interval_ms=HOUR_MS, **SMALL) as s:
        while not caplog.records:
            time.sleep(0.001)
        figures, why = read_live(s.path)
        assert figures is None and "directory" in why
        s.put("T", b"x", wait=True)
    assert {r.event for r in caplog.records} == {"TASK_FAILED"}


def test_a_reader_meets_a_whole_file_whenever_it_looks(store):
    stop, seen, bad = threading.Event(), set(), []

    def read():
        while not stop.is_set():
            figures, why = read_live(store.path)
            if figures is None:
                bad.append(why)
            else:
                seen.add(figures["stats"]["puts"])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for i in range(300):
            store.put("T", b"x")
            again(store)
            while i == 150 and not seen and not bad:
                time.sleep(0.001)
    finally:
        stop.set()
        reader.join()
    assert not bad and seen


@pytest.mark.parametrize("kind", ["open", "pwrite", "rename"])
def test_a_disk_without_room_costs_figures_and_no_store(tmp_path, caplog, kind):
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", stats_file_interval_ms=HOUR_MS, _io=probe, **SMALL) as s:
        first = written(s)
        probe.fail(kind, errno=errno.ENOSPC, path="/.stats.json", sticky=True)
        s.put("T", b"x", wait=True)
        assert s._publisher._write() and s._publisher._write()
        assert [r.event for r in caplog.records] == ["TASK_FAILED"] and "No space" in caplog.text
        assert read_live(s.path)[0] == first and s.stats()["errno"] == 0
        probe.clear()
        assert again(s)["stats"]["puts"] == 1
    assert not list((tmp_path / "s").glob(".stats*"))


def test_what_cannot_be_removed_is_said_and_no_crash(tmp_path, caplog):
    probe = ProbeIo(keep_bytes=False)
    store = MessageStore.open(tmp_path / "s", stats_file_interval_ms=HOUR_MS, _io=probe, **SMALL)
    written(store)
    probe.fail("unlink", errno=errno.EIO, path="/.stats.json", sticky=True)
    store.close()
    assert [r.event for r in caplog.records] == ["TASK_FAILED"] and "removing" in caplog.text
    with MessageStore.open(tmp_path / "s", **SMALL) as again_open:
        assert not again_open.stats()["recovered"]


def test_figures_of_a_predecessor_are_no_live_ones(store):
    figures = written(store)
    with open(live_path(store.path), "w") as file:
        json.dump(figures | {"pid": figures["pid"] + 1}, file)
    found, why = read_live(store.path)
    assert found is None and str(figures["pid"] + 1) in why and f"process {figures['pid']} has the store" in why

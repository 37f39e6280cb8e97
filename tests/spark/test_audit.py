"""The audit on Spark finds what verification in one thread finds, however the store is cut into parts."""
import json
import os
import shutil

import pytest

import rmq_store
from rmq_store import MessageStore
from tests import golden_store
from tests.integrity.test_golden_silent import content

GOOD = [c for c in golden_store.cases() if "crash" not in c]
SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 500}


def told(findings):
    # A damaged record's queue is known to one of the two only.
    return sorted((f.kind, f.severity, f.path, f.offset, f.size, f.count,
                   *((f.topic, f.queue_id, f.queue_offset) if f.severity != "corrupt" else ())) for f in findings)


def both(root, split_size=20_000, **store):
    """Findings of both; they are the same."""
    from rmq_store.spark import jobs

    found = jobs.audit(None, str(root), store=store, split_size=split_size).findings
    assert told(found) == told(rmq_store.verify(root, **store))
    return found


@pytest.mark.parametrize("name", golden_store.cases())
def test_stores_of_the_real_rocketmq(tasks, golden, name):
    case = golden(name)
    size = sum(file.stat().st_size for file in (case.store / "commitlog").iterdir())
    found = both(case.store, max(20_000, size // 16), compat=case.compat, **case.config)
    assert name not in GOOD or not [f for f in found if f.severity != "note"]


@pytest.mark.parametrize("name", GOOD)
def test_a_store_that_rocketmq_closed_is_healthy(tasks, golden, name):
    """Without any option, as an operator has it on a disk: what its files do not tell nobody says."""
    from rmq_store.spark import jobs

    root = golden(name).store
    before = content(root)
    report = jobs.audit(None, str(root))
    assert [f for f in report.findings if f.severity != "note"] == [] and report.records > 0
    assert content(root) == before


@pytest.mark.parametrize("split_size", [3000, 50_000, 1 << 20])
def test_a_store_of_ours_in_parts_of_any_size(tasks, own_store, split_size):
    assert both(own_store, split_size) == []


def written(root):
    with MessageStore.open(root, manifest_interval_ms=1, **SMALL) as s:
        places = [s.put("T", b"message %d" % i * 20, queue_id=i % 3, tags=f"t{i}", keys=f"k{i} all") for i in range(900)]
        s.wait_dispatched(10)
    return places


def patch(path, at, data):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, data, at)
    os.close(fd)


def entry(root, number):
    """Path and position of an entry of the first index file."""
    return sorted((root / "index").iterdir())[0], 40 + 400 + 20 * number


DAMAGE = {
    "a body": (lambda r, p: patch(r / "commitlog" / ("0" * 20), p[30].offset + 95, b"\xff"), "body_crc"),
    "a record": (lambda r, p: patch(r / "commitlog" / ("0" * 20), p[50].offset, bytes(60)), "log_hole"),
    "a queue entry": (lambda r, p: patch(r / "consumequeue" / "T" / "1" / f"{2000:020d}", 99 * 20, b"\0\0\0\0\0\0\1\1"),
                      "queue_wrong"),
    "a tags code": (lambda r, p: patch(r / "consumequeue" / "T" / "1" / f"{2000:020d}", 99 * 20 + 15, b"\1\2\3"), "queue_tags"),
    "a queue": (lambda r, p: shutil.rmtree(r / "consumequeue" / "T" / "2"), "queue_missing"),
    "a queue file": (lambda r, p: os.truncate(r / "consumequeue" / "T" / "2" / f"{2000:020d}", 77), "queue_file"),
    "an index entry's place": (lambda r, p: patch(entry(r, 50)[0], entry(r, 50)[1] + 4, b"\0\0\0\0\0\0\0\7"), "index_wrong"),
    "an index entry's place, far": (lambda r, p: patch(entry(r, 250)[0], entry(r, 250)[1] + 4, b"\x7f"), "index_missing"),
    "an index entry's hash": (lambda r, p: patch(*entry(r, 300), b"\1\2\3\4"), "index_missing"),
    "an index entry's chain": (lambda r, p: patch(entry(r, 400)[0], entry(r, 400)[1] + 16, b"\0\0\0\3"), "index_chain"),
    "the newest index file": (lambda r, p: sorted((r / "index").iterdir())[-1].unlink(), "index_behind"),
    "the index": (lambda r, p: shutil.rmtree(r / "index"), "no_index"),
    "the checkpoint": (lambda r, p: os.truncate(r / "checkpoint", 10), "checkpoint"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_as_verification_finds_it(tasks, tmp_path, what):
    damage, kind = DAMAGE[what]
    damage(tmp_path / "s", written(tmp_path / "s"))
    found = both(tmp_path / "s", 7000)
    assert kind in {f.kind for f in found}


def test_what_only_a_manifest_covers(tasks, tmp_path):
    from rmq_store.spark import jobs

    root = tmp_path / "s"
    places = written(root)
    rmq_store.scrub(root, bytes_per_s=None, make_manifests=True)
    assert both(root) == []
    patch(root / "commitlog" / ("0" * 20), places[10].offset + 16, b"\7")      # the record's flag
    assert [(f.kind, f.offset, f.size) for f in both(root)] == [("manifest_mismatch", 0, 65536)]
    assert jobs.audit(None, str(root), cross_check=False).findings == []


def test_queues_that_were_removed_are_no_loss(tasks, store_with_removed_queues):
    root = store_with_removed_queues
    assert both(root) == []
    (root / "consumequeue" / "Kept" / "1" / f"{0:020d}").unlink()
    assert {(f.kind, f.topic) for f in both(root)} >= {("queue_missing", "Kept")}
    assert not [f for f in both(root) if f.topic == "Gone"]
    (root / "config" / "removedQueues.json").write_text("{")
    lost = {("config_file", None), ("queue_other", "Gone"), ("queue_missing", "Gone")}
    assert {(f.kind, f.topic) for f in both(root)} >= lost


def test_a_store_that_is_open_has_notes_only(tasks, tmp_path):
    from rmq_store.spark import jobs

    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(300):
            store.put("T", b"x" * 300, keys=f"k{i}")
        found = jobs.audit(None, store.path, split_size=20_000).findings
        assert {f.severity for f in found} == {"note"}


@pytest.mark.spark
def test_an_audit_of_many_stores_on_spark(spark, stores):
    from rmq_store.spark import jobs

    paths = {name: str(stores(name).store) for name in ("v4-roll", "v5-plain", "v5-ipv6")}
    report = jobs.audit(spark, paths, split_size=500_000)
    lines = [x for name in paths for x in stores(name).expected() if x["t"] == "log" and x["kind"] != "blank"]
    assert report.findings == []
    assert report.records == len(lines)
    torn = jobs.audit(spark, stores("v4-crash-torncrc").store)
    assert told(torn.findings) == told(rmq_store.verify(stores("v4-crash-torncrc").store))
    assert json.dumps([f.as_dict() for f in torn.findings])

"""Verification: nothing is wrong with whole stores, Java's or ours, and each damage is found, named and nothing else is."""
import json
import os
import shutil

import pytest

import rmq_store
from rmq_store import MessageStore
from tests import golden_store
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


def kinds(root, **options):
    return sorted({f.kind for f in rmq_store.verify(root, **options)})


def written(root, count=600, image=None):
    with MessageStore.open(root, **SMALL) as s:
        places = [s.put("T", b"message %d" % i * 20, queue_id=i % 3, tags=f"t{i}", keys=f"k{i} all") for i in range(count)]
        s.wait_dispatched(10)
        s.flush()
        if image:
            take_image(root, image)
    return places


def patch(path, at, data):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, data, at)
    os.close(fd)


@pytest.mark.parametrize("name", [n for n in golden_store.cases() if "crash" not in n])
def test_nothing_is_wrong_with_what_java_wrote(golden, name):
    case = golden(name)
    found = list(rmq_store.verify(case.store, compat=case.compat, **case.config))
    assert [f for f in found if f.severity != "note"] == []


@pytest.mark.parametrize("name, expected", [
    ("v4-crash-clean", []), ("v4-crash-torncrc", ["body_crc"]), ("v4-crash-shortfile", ["log_file"]),
    ("v4-crash-cqmissing", ["queue_missing"])])
def test_java_stores_after_a_crash(golden, name, expected):
    case = golden(name)
    found = {f.kind for f in rmq_store.verify(case.store, compat=case.compat, **case.config) if f.severity != "note"}
    assert set(expected) <= found and (expected or not found)


def test_whole_stores_of_ours_and_those_that_are_open(tmp_path):
    written(tmp_path / "s", image=tmp_path / "killed")
    assert kinds(tmp_path / "s") == []
    assert kinds(tmp_path / "killed") == ["not_closed"]
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put("T", b"x")
        s.flush()
        s.wait_dispatched(10)
        assert kinds(tmp_path / "s") == ["not_closed"]


def test_damage_in_the_log_is_found_and_what_follows_is_looked_at(tmp_path):
    places = written(tmp_path / "s")
    log = tmp_path / "s" / "commitlog" / ("0" * 20)
    patch(log, places[30].offset + 95, b"\xff")             # a body
    patch(log, places[50].offset, bytes(60))                # no record any more
    patch(log, places[70].offset + 30, b"\1")               # claims another place
    found = [f for f in rmq_store.verify(tmp_path / "s") if f.severity == "corrupt"]
    assert [(f.kind, f.offset, f.size) for f in found] == [
        ("body_crc", places[30].offset, places[30].size), ("log_hole", places[50].offset, places[50].size),
        ("log_hole", places[70].offset, places[70].size)]
    assert found[0].topic == "T" and found[0].queue_offset == 10
    entries = [f for f in rmq_store.verify(tmp_path / "s") if f.kind == "queue_wrong"]
    assert sorted((f.topic, f.queue_id, f.queue_offset) for f in entries) == [("T", 1, 23), ("T", 2, 16)]
    assert not list(tmp_path.glob("s/.salvage"))


@pytest.mark.parametrize("field, data, kind", [(0, b"\0\0\0\0\0\0\1\1", "queue_wrong"), (8, b"\0\0\3", "queue_wrong"),
                                               (15, b"\1\2\3\4", "queue_tags"), (8, bytes(4), "queue_missing")])
def test_a_damaged_queue_entry(tmp_path, field, data, kind):
    written(tmp_path / "s")
    patch(tmp_path / "s" / "consumequeue" / "T" / "1" / f"{2000:020d}", 99 * 20 + field, data)
    found = [f for f in rmq_store.verify(tmp_path / "s") if f.kind == kind]
    assert [(f.topic, f.queue_id, f.queue_offset, f.count) for f in found] == [("T", 1, 199, 1)]
    assert all(f.severity == "finding" for f in rmq_store.verify(tmp_path / "s"))


@pytest.mark.parametrize("at, data, kind", [
    (40 + 400 + 20 * 50 + 4, b"\0\0\0\0\0\0\0\7", "index_wrong"), (40 + 400 + 20 * 50, b"\1\2\3\4", "index_wrong"),
    (40 + 400 + 20 * 500 + 16, b"\0\0\0\3", "index_chain"), (24, b"\0\0\0\0\0\0\0\7", "index_header")])
def test_a_damaged_index(tmp_path, at, data, kind):
    written(tmp_path / "s")
    patch(sorted((tmp_path / "s" / "index").iterdir())[0], at, data)
    assert kind in kinds(tmp_path / "s")
    assert all(f.severity == "finding" for f in rmq_store.verify(tmp_path / "s"))


def test_a_slot_and_a_lost_index_file(tmp_path):
    written(tmp_path / "s")
    files = sorted((tmp_path / "s" / "index").iterdir())
    assert len(files) == 2
    patch(files[0], 40, b"\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1")
    assert kinds(tmp_path / "s", index_slots=100, index_entries_max=1000) == ["index_slot"]
    shutil.rmtree(tmp_path / "s")
    written(tmp_path / "s")
    sorted((tmp_path / "s" / "index").iterdir())[1].unlink()
    assert "index_behind" in kinds(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "index")
    assert kinds(tmp_path / "s") == ["no_index"]


def test_files_that_do_not_belong_or_are_missing(tmp_path):
    written(tmp_path / "s")
    root = tmp_path / "s"
    (root / "commitlog" / "note.txt").write_text("x")
    (root / "index" / "dir").mkdir()
    assert kinds(root) == ["foreign_file"]
    os.truncate(sorted((root / "consumequeue" / "T" / "0").iterdir())[1], 77)
    assert {"queue_file", "queue_missing"} <= set(kinds(root))
    files = sorted((root / "commitlog").glob("0*"))
    files[1].unlink()
    assert "log_gap" in kinds(root)
    os.truncate(root / "checkpoint", 10)
    assert "checkpoint" in kinds(root)


def test_rows_of_missing_entries_are_one_finding(tmp_path):
    written(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "consumequeue")
    found = [f for f in rmq_store.verify(tmp_path / "s") if f.kind == "queue_missing"]
    assert sorted((f.queue_id, f.queue_offset, f.count) for f in found) == [(0, 0, 200), (1, 0, 200), (2, 0, 200)]


def test_it_writes_nothing(tmp_path):
    written(tmp_path / "s", image=tmp_path / "killed")
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in (tmp_path / "killed").rglob("*")}
    list(rmq_store.verify(tmp_path / "killed"))
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in (tmp_path / "killed").rglob("*")} == before


def test_the_command(tmp_path, rmqstore):
    places = written(tmp_path / "s")
    assert rmqstore("verify", tmp_path / "s")[:2] == (0, f"{tmp_path / 's'}: nothing wrong\n")
    patch(tmp_path / "s" / "consumequeue" / "T" / "1" / f"{0:020d}", 15, b"\1\2\3")
    code, out, err = rmqstore("verify", tmp_path / "s", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (1, "") and lines[0]["kind"] == "queue_tags" and lines[0]["queue_offset"] == 0
    assert lines[-1] == {"kind": "summary", "path": str(tmp_path / "s"), "corrupt": 0, "finding": 1, "note": 0,
                         "kinds": {"queue_tags": 1}}
    patch(tmp_path / "s" / "commitlog" / ("0" * 20), places[9].offset + 95, b"\xff")
    code, out, _ = rmqstore("verify", tmp_path / "s")
    assert code == 4 and f"corrupt: body_crc {tmp_path / 's'}/commitlog/{0:020d} at {places[9].offset} T/0[3]" in out
    assert rmqstore("verify", tmp_path / "nothing")[0] == 3


@pytest.mark.parametrize("text", [b"\0" * 50, b"{", b'{"changed": []}', b'{"changed": {"role": 5}}'])
def test_damaged_changes_of_a_broker_are_found(tmp_path, rmqstore, text):
    """`serve` refuses to start with them."""
    MessageStore.open(tmp_path / "s", profile="test").close()
    path = tmp_path / "s/config/brokerChanges.json"
    path.write_bytes(text)
    code, out, _ = rmqstore("verify", tmp_path / "s")
    assert code == 1 and f"config_file {path}" in out
    code, out, _ = rmqstore("repair", tmp_path / "s")
    assert code == 1 and f"none: {path}" in out and path.read_bytes() == text

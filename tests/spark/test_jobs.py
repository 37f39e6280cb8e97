"""Jobs on stores of the real RocketMQ and on damaged ones."""
import filecmp
import json
import os
import shutil
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.errors import CorruptionError, StoreLocked
from tests import golden_store
from tests.bulk.conftest import LogFile

GOOD = [c for c in golden_store.cases() if "crash" not in c]
# Index files are called after the moment they were made, so only what is in them is compared.


def files_under(root):
    return {os.path.relpath(os.path.join(place, name), root): os.path.join(place, name)
            for place, _, names in os.walk(root) for name in names}


def same_trees(one, two):
    a, b = files_under(one), files_under(two)
    assert a.keys() == b.keys()
    different = [name for name in a if not filecmp.cmp(a[name], b[name], shallow=False)]
    assert not different


@pytest.mark.parametrize("name", ["own", *(c for c in GOOD if c not in ("v4-cqext",))])
def test_rebuilt_queues_are_byte_equal(tasks, request, golden, name, tmp_path):
    from rmq_store.spark.jobs import rebuild_queues

    root = request.getfixturevalue("own_store") if name == "own" else golden(name).store
    made = rebuild_queues(None, str(root), split_size=20_000)
    assert made.queues > 0
    same_trees(made.directory, root / "consumequeue")


def test_rebuilt_queue_files_are_as_old_as_their_newest_message(tasks, own_store):
    """RocketMQ 4.9 finds the file of a time by them."""
    from rmq_store.spark.jobs import rebuild_queues

    made = rebuild_queues(None, str(own_store), split_size=20_000)
    with MessageStore.open(own_store, readonly=True) as store:
        times = [m.store_timestamp for m in store.scan("A", 0)]
    each = 800 // 20
    newest = [times[min(i + each, len(times)) - 1] for i in range(0, len(times), each)]
    files = sorted(os.scandir(os.path.join(made.directory, "A", "0")), key=lambda e: e.name)
    assert [f.stat().st_mtime_ns for f in files] == [t * 1_000_000 for t in newest] and len(files) > 1


def test_queues_that_do_not_begin_at_zero_get_their_fillers(tasks, own_store, tmp_path):
    from rmq_store.spark.jobs import rebuild_queues

    logs = sorted((own_store / "commitlog").iterdir())
    os.unlink(logs[0])          # what retention does; the queues of a store opened without any begin in the middle
    shutil.copytree(own_store, tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "consumequeue")
    with MessageStore.open(tmp_path / "again", consumequeue_file_size_bytes=800) as store:
        assert store.wait_dispatched(20)
    made = rebuild_queues(None, str(own_store), split_size=20_000)
    same_trees(made.directory, tmp_path / "again" / "consumequeue")
    first = sorted(os.scandir(os.path.join(made.directory, "A", "0")), key=lambda e: e.name)[0]
    with open(first.path, "rb") as file:
        assert file.read(20) == bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)


@pytest.mark.parametrize("name", ["own", "v4-roll", "v5-roll", "v5-plain", "v4-delaytx"])
def test_a_rebuilt_index_has_the_same_files(tasks, request, golden, name):
    from rmq_store.spark.jobs import rebuild_index

    root = request.getfixturevalue("own_store") if name == "own" else golden(name).store
    made = rebuild_index(None, str(root), split_size=20_000)
    present = [p for p in sorted((root / "index").iterdir()) if int.from_bytes(p.read_bytes()[36:40], "big") > 1]
    rebuilt = sorted(os.scandir(made.directory), key=lambda e: e.name)
    assert len(rebuilt) == len(present) == made.files > 0
    for one, two in zip(rebuilt, present, strict=True):
        assert filecmp.cmp(one.path, two, shallow=False), two


def test_queues_that_were_removed_stay_away(tasks, store_with_removed_queues):
    """Their older messages are in the log still, with queue offsets that newer ones have too."""
    from rmq_store.spark.jobs import rebuild_index, rebuild_queues

    root = store_with_removed_queues
    made = rebuild_queues(None, str(root), split_size=20_000)
    assert sorted(n for n in os.listdir(os.path.join(made.directory, "Gone"))) == ["0"]
    assert (made.queues, made.entries) == (5, 150 + 200 + 150)
    same_trees(made.directory, root / "consumequeue")
    made = rebuild_index(None, str(root), split_size=20_000)        # the index keeps their keys, as the store does
    assert made.files == len(os.listdir(root / "index")) and made.keys == 700
    rebuild_queues(None, str(root), install=True, split_size=20_000)
    with MessageStore.open(root) as store:
        assert store.queues("Gone") == [0] and [bytes(m.body) for m in store.scan("Gone", 0)] == [b"new" * 30] * 150
    (root / "config" / "removedQueues.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"removedQueues\.json"):
        rebuild_queues(None, str(root))


def test_put_in_place_under_the_lock(tasks, own_store):
    from rmq_store.spark.jobs import rebuild_index, rebuild_queues

    before = files_under(own_store / "consumequeue").keys()
    with MessageStore.open(own_store) as store:
        with pytest.raises(StoreLocked):
            rebuild_queues(None, str(own_store), install=True)
        content = [bytes(m.body) for m in store.scan("A", 0)]
    shutil.rmtree(own_store / "consumequeue" / "A")
    rebuild_queues(None, str(own_store), install=True)
    rebuild_index(None, str(own_store), install=True)
    assert files_under(own_store / "consumequeue").keys() == before
    with MessageStore.open(own_store) as store:
        assert [bytes(m.body) for m in store.scan("A", 0)] == content
        assert len(store.query_key("A", "k6", exact=False)) == 1


def test_damage_stops_a_rebuild(tasks, golden):
    from rmq_store.spark.jobs import rebuild_queues

    root = golden("v5-roll").store
    log = sorted((root / "commitlog").iterdir())[0]
    with open(log, "r+b") as f:
        f.write(b"\0" * 200)
    with pytest.raises(CorruptionError, match="audit the store"):
        rebuild_queues(None, str(root))


def test_a_part_that_was_fooled_stops_a_rebuild(tasks, tmp_path):
    """A body longer than a part looks back over, with images of records that chain up to the next true one: no record is bad,
    but the parts do not meet."""
    from rmq_store.spark.jobs import rebuild_queues

    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    cut = 9 << 20
    file = LogFile(tmp_path / "s" / "commitlog", size=12 << 20)
    # The last image takes the record's own topic and properties for the end of its own (tests/bulk/test_split.py says how).
    last = file.image(cut + 1000, properties=b"NAME\x01value\x027 bytes")[:-7]
    file.add(bytes(cut - 1000 - 88) + file.image(cut - 1000, size=2000) + last, topic="Real")
    behind = file.add()
    file.write()
    with pytest.raises(CorruptionError, match=f"at offset {cut + 1000}: expected a record at {behind}, where the part before"):
        rebuild_queues(None, str(tmp_path / "s"), split_size=cut)
    assert rebuild_queues(None, str(tmp_path / "s"), split_size=12 << 20).entries == 2

@pytest.mark.parametrize("split_size", [500, 1 << 20])
@pytest.mark.parametrize("number", [0, 5, 9])
def test_a_queue_offset_that_rotted_is_no_hole_that_is_installed(tasks, tmp_path, number, split_size):
    """There are as many records as offsets then, from the first to the last."""
    from rmq_store.spark.jobs import rebuild_queues

    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536) as store:
        places = [store.put("T", b"x" * 100, queue_id=0).offset for _ in range(10)]
    log = next((tmp_path / "s" / "commitlog").iterdir())
    with open(log, "r+b") as file:
        file.seek(places[number] + 20)
        file.write((number + 1).to_bytes(8, "big"))
    before = {name: Path(path).read_bytes() for name, path in files_under(tmp_path / "s" / "consumequeue").items()}
    with pytest.raises(CorruptionError, match=r"expected queue offset [0-9]+ of T/0"):
        rebuild_queues(None, str(tmp_path / "s"), install=True, split_size=split_size)
    assert {n: Path(p).read_bytes() for n, p in files_under(tmp_path / "s" / "consumequeue").items()} == before
    assert not (tmp_path / "s" / ".spark" / "rebuild" / "consumequeue").exists()


def test_an_export_is_read_back_goes_on_and_is_verified(tasks, tmp_path):
    import pyarrow.parquet as pq

    from rmq_store.spark.jobs import export, verify_export

    out = str(tmp_path / "out")
    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536) as store:
        for i in range(500):
            store.put("T", b"%d" % i * 20, tags="a")
        first = export(None, store.path, out)
        assert first.rows == 500 and first.files > 0
        assert export(None, store.path, out).rows == 0
        for i in range(500, 600):
            store.put("T", b"%d" % i * 20)
        assert export(None, store.path, out).rows == 100
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert verify_export(out) == len(manifest["files"])
    assert sorted(f["file"] for f in manifest["files"]) == sorted(n for n in os.listdir(out) if n.endswith(".parquet"))
    rows = [r for f in sorted(f["file"] for f in manifest["files"])
            for r in pq.read_table(os.path.join(out, f), columns=["body"]).column("body").to_pylist()]
    assert rows == [b"%d" % i * 20 for i in range(600)]
    with open(os.path.join(out, manifest["files"][0]["file"]), "r+b") as f:
        f.seek(100)
        f.write(b"!!")
    with pytest.raises(CorruptionError, match="crc32c"):
        verify_export(out)


@pytest.mark.untraced       # it watches the calls of os by itself
def test_what_a_job_made_is_durable_before_it_counts(tasks, own_store, tmp_path, monkeypatch):
    from rmq_store.spark.jobs import export, rebuild_index, rebuild_queues

    calls, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(("sync", os.readlink(f"/proc/self/fd/{fd}"))) or fsync(fd))
    monkeypatch.setattr(os, "rename", lambda one, two: calls.append(("rename", str(two))) or rename(one, two))
    out = str(tmp_path / "out")
    export(None, str(own_store), out, split_size=20_000)
    manifest = calls.index(("rename", os.path.join(out, "_manifest.json")))
    last = max(i for i, (call, path) in enumerate(calls) if call == "rename" and path.endswith(".parquet"))
    assert last < manifest and ("sync", out) in calls[last:manifest] and ("sync", out) in calls[manifest:]
    for job, name in ((rebuild_queues, "consumequeue"), (rebuild_index, "index")):
        calls.clear()
        job(None, str(own_store), install=True, split_size=20_000)
        placed = calls.index(("rename", str(own_store / name)))
        made = own_store / ".spark" / "rebuild" / name
        assert ("sync", str(made)) in calls[:placed] and ("sync", str(own_store)) in calls[placed:]
        if name == "consumequeue":      # index files are synced by the kernel
            inside = {str(made / path.relative_to(own_store / name)) for path in (own_store / name).rglob("*")}
            assert len(inside) > 20 and inside <= {path.rstrip("/") for call, path in calls[:placed] if call == "sync"}


@pytest.mark.spark
def test_rebuild_and_export_through_spark(spark, golden, tmp_path):
    from rmq_store.spark import jobs

    root = golden("v5-roll").store
    made = jobs.rebuild_queues(spark, str(root), split_size=200_000)
    same_trees(made.directory, root / "consumequeue")
    assert jobs.rebuild_index(spark, str(root)).files == len(list((root / "index").iterdir()))
    done = jobs.export(spark, str(root), str(tmp_path / "out"))
    assert spark.read.parquet(str(tmp_path / "out")).count() == done.rows > 0


@pytest.mark.spark
def test_what_a_retention_would_keep(spark, tmp_path):
    from rmq_store.base.io._io import ProbeIo
    from rmq_store.spark import jobs

    begin, hour, probe = 1_700_000_000_000, 3_600_000, ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "aged", segment_size_bytes=65536, _io=probe) as store:
        for i in range(4):
            probe.set_clock(begin + i * hour)
            size = sum(store.put("T", b"x").size for _ in range(10 * (i + 1)))
        probe.set_clock(None)
    root, each = str(tmp_path / "aged"), size // 40
    rows = jobs.retention(spark, root, hours=(24, 1, 2), now=begin + 4 * hour).collect()
    assert [tuple(r) for r in rows] == [(1, 40, 40 * each, 0.4), (2, 70, 70 * each, 0.7), (24, 100, 100 * each, 1.0)]
    assert [r.messages for r in jobs.retention(spark, root, hours=(1,), now=begin + 4 * hour + 1).collect()] == [0]
    assert [r.messages for r in jobs.retention(spark, root, hours=(1,)).collect()] == [70]     # from the newest message on

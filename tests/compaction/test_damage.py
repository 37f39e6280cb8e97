"""Compaction logs that are damaged, disagree with their queue, or meet an error half-way: no value is lost, none comes back."""
import errno
import json
import os
import shutil
import struct

import pytest

from rmq_store import MessageStore, doctor, errors, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.compaction import files as disk
from tests.compaction import model

KEYS = {f"k{i}" for i in range(10)}


def made(root, count=100, keys=10, io=None, queue_id=0):
    """A store with a compaction topic, which was fed and not compacted."""
    store = model.open_store(root, io)
    store.topic_table.set_cleanup_policy("C", "COMPACTION")
    put(store, 0, count, keys, queue_id)
    store._compactions.feed(store)
    return store


def put(store, first, count, keys=10, queue_id=0, body=b"%06d"):
    for i in range(first, first + count):
        store.put("C", body % i if b"%" in body else body, keys=f"k{i % keys}", queue_id=queue_id)
    store.flush()
    store.wait_dispatched(10)


def clean(store):
    store.clean(hours=0, pace_ms=0)
    return store._queues_of("C")[0][1]


def values(store):
    return {key: bytes(message.body) for key, message in store.table("C").items()}


def pair_files(root, kind, queue_id=0):
    place = os.path.join(root, "compaction", kind, "C", str(queue_id))
    return [os.path.join(place, name) for name in sorted(os.listdir(place)) if len(name) == 20]


def content_of(path):
    with open(path, "rb") as file:
        return file.read()


def spoil(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


# ---- entries

@pytest.mark.parametrize("slot", [0, 7])
def test_a_damaged_entry_of_a_closed_pair_loses_no_value(tmp_path, slot):
    with made(tmp_path / "s", 60, keys=60) as store:
        assert len(pair_files(store.path, "compactionCq")) > 2
        expected = values(store)
        clean(store)
    spoil(pair_files(tmp_path / "s", "compactionCq")[0], slot * 46, struct.pack(">q", -7))
    found = [f for f in verify(tmp_path / "s") if f.kind == "compaction_file"]
    assert [(f.severity, f.topic, f.queue_id) for f in found] == [("corrupt", "C", 0)]
    assert f"entry {slot} is damaged" in str(found)
    assert [i.level for i in doctor(tmp_path / "s", measure=False).items if i.subject == "compaction"] == ["finding"]
    with model.open_store(tmp_path / "s", readonly=True) as store:
        assert store.compaction_states("C")[0].damage.startswith(f"entries behind entry {slot} of ")
        with pytest.raises(errors.CorruptionError, match="entries without a gap"):
            store.compact("C", dry_run=True)
    with model.open_store(tmp_path / "s") as store:
        store.compact("C")
        assert values(store) == expected and len(expected) == 60
        assert store.compaction_states("C")[0].damage == ""
    assert [f for f in os.listdir(tmp_path / "s/.salvage") if f.endswith(".damaged.0")]
    assert [f for f in verify(tmp_path / "s") if f.kind.startswith("compaction")] == []
    assert [i.level for i in doctor(tmp_path / "s", measure=False).items if i.subject == "compaction"] == ["ok"]


def test_an_entry_and_a_record_that_are_damaged_stop_the_compaction(tmp_path):
    with made(tmp_path / "s", 60, keys=60) as store:
        clean(store)
    spoil(pair_files(tmp_path / "s", "compactionCq")[0], 7 * 46, struct.pack(">q", -7))
    spoil(pair_files(tmp_path / "s", "compactionLog")[0], 0, struct.pack(">i", 3))
    content = [content_of(f) for f in pair_files(tmp_path / "s", "compactionLog")]
    with model.open_store(tmp_path / "s") as store:
        with pytest.raises(errors.CorruptionError, match="a damaged entry behind 7 good ones"):
            store.compact("C")
        assert store.compaction_states("C")[0].damage
    assert [content_of(f) for f in pair_files(tmp_path / "s", "compactionLog")] == content


@pytest.mark.parametrize("record_too", [False, True])
def test_the_newest_pair_is_not_written_over(tmp_path, record_too):
    """What is behind a damaged entry of the newest pair, and in no log any more."""
    with made(tmp_path / "s", 15, keys=15) as store:
        expected = values(store)
        assert len(pair_files(store.path, "compactionCq")) == 1
        store.put_many("T", [bytes(1000)] * 20)
        store.flush()
        store.wait_dispatched(10)
        assert clean(store) == 15
    (entries,), (records,) = (pair_files(tmp_path / "s", kind) for kind in ("compactionCq", "compactionLog"))
    spoil(entries, 3 * 46, bytes(46))
    if record_too:
        spoil(records, 0, struct.pack(">i", 3))
    before = [content_of(f) for f in (entries, records)]
    with model.open_store(tmp_path / "s") as store:
        put(store, 15, 30, keys=45)
        store._compactions.feed(store)
        if record_too:
            assert [content_of(f) for f in (entries, records)] == before
        else:
            assert values(store).items() >= expected.items()
            store.compact("C")
            assert values(store).items() >= expected.items()
        clean(store)
        assert values(store).keys() >= {f"k{i}" for i in range(15, 45)}


def test_an_entry_that_leads_elsewhere_is_no_message_of_another_key(tmp_path):
    with made(tmp_path / "s", 60, keys=60) as store:
        clean(store)
    first = pair_files(tmp_path / "s", "compactionCq")[0]
    place, size = struct.unpack_from(">qi", content_of(first), 5 * 46)
    spoil(first, 4 * 46, struct.pack(">qi", place - 1, size))       # plausible, and leads into the middle of a record
    with model.open_store(tmp_path / "s") as store:
        with pytest.raises(errors.CorruptionError):
            store.compact("C")
        assert {m.keys for m in store.table("C").values()} <= {f"k{i}" for i in range(60)}
        assert all(key == m.keys for key, m in store.table("C").items())


# ---- a queue and its compaction log that disagree

@pytest.mark.parametrize("more", [0, 5, 80])
def test_a_queue_that_was_cut_and_has_other_messages_by_now(tmp_path, more):
    """As many messages as the compaction log has, fewer, and more: a power cut under a broker, then puts before a feed."""
    made(tmp_path / "s", 60).close()
    for name in "tu":
        shutil.copytree(tmp_path / "s", tmp_path / name)
    with model.open_store(tmp_path / "u") as ahead:
        put(ahead, 60, 35)
        ahead._compactions.feed(ahead)
    shutil.rmtree(tmp_path / "t/compaction")
    shutil.copytree(tmp_path / "u/compaction", tmp_path / "t/compaction")
    with model.open_store(tmp_path / "t") as other:
        put(other, 60, 30 + more, body=b"other")
        other._compactions.feed(other)
        assert other._compactions._log("C", 0, False).segments.bounds() == (0, 89 + more)
        other.compact("C")
        clean(other)
        assert set(values(other).values()) == {b"other"} and values(other).keys() == KEYS
        assert [f for f in os.listdir(tmp_path / "t/.salvage") if "compaction" in f]


def test_what_was_cleaned_while_nobody_compacted_makes_old_values_go(tmp_path):
    """compaction_enabled=False and cleaning: the newer value is gone, and the old one must not come back."""
    with made(tmp_path / "s", 100) as store:
        store.put("C", b"old", keys="a")
        store.flush()
        store.wait_dispatched(10)
        store.compact("C")
    with model.open_store(tmp_path / "s", compaction_enabled=False) as store:
        store.put("C", b"new", keys="a")
        put(store, 102, 100)
        assert clean(store) > 102
        for enabled, seen in ((True, set()), (False, set())):
            with model.open_store(tmp_path / "s", readonly=True, compaction_enabled=enabled) as reader:
                assert {m.keys for m in reader.get("C", 0, 0)} == seen and "a" not in reader.table("C")
    with model.open_store(tmp_path / "s") as store:
        assert "a" not in values(store) and store.min_offset("C", 0) > 102
        put(store, 202, 100)
        store.compact("C")
        clean(store)
        assert values(store).keys() == KEYS and not os.path.exists(disk.Places(store.path, "C", 0).unfed)


def test_a_policy_that_comes_back_before_anything_was_cleaned_keeps_the_values(tmp_path):
    with made(tmp_path / "s", 100) as store:
        store.put("C", b"alone", keys="a")
        put(store, 101, 100)
        assert clean(store) > 101
        store.topic_table.set_cleanup_policy("C", "DELETE")
        disk.mark_unfed(store._files, disk.Places(store.path, "C", 0))      # as the cleaner does before it deletes
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        assert values(store)["a"] == b"alone" and not os.path.exists(tmp_path / "s/.salvage")


def test_a_position_of_another_queue_brings_no_deleted_key_back(tmp_path):
    with made(tmp_path / "s", 0) as store:
        store.put("C", b"x", keys="dead")
        store.put("C", b"", keys="dead")
        put(store, 2, 80)
        positions = disk.Positions.of(store._files, store.path)
        positions.set("C", 0, 30)       # of a queue of the same name, which was deleted while the process was killed
        store.compact("C")
        clean(store)
        assert not [m for m in model.walked(store) if m[1] == "dead"] and "dead" not in values(store)


def test_a_killed_delete_leaves_no_position(tmp_path):
    probe = ProbeIo()
    with made(tmp_path / "s", 100, io=probe) as store:
        store.compact("C")
        probe.fail("unlink", 1, errno.EIO, path="/compactionLog/")
        with pytest.raises(OSError):
            store.delete_topics("C")
        assert disk.Positions.of(store._files, store.path).get("C", 0) == -1


# ---- one queue's trouble, and errors half-way

def test_a_damaged_queue_stops_no_other(tmp_path):
    with made(tmp_path / "s", 100) as store:
        put(store, 0, 100, queue_id=1)
        store._compactions.feed(store)
        clean(store)
    spoil(pair_files(tmp_path / "s", "compactionLog")[0], 4, b"\xff")
    for path in pair_files(tmp_path / "s", "compactionLog", 1)[-1:]:
        assert os.path.exists(path)
    with model.open_store(tmp_path / "s") as store:
        put(store, 100, 20, queue_id=1)
        with pytest.raises(errors.CorruptionError, match="queue offset 0"):
            store.compact("C")
        assert disk.Positions.of(store._files, store.path).get("C", 1) > 0
        assert store._compactions._log("C", 1, False).segments.bounds()[1] == 119


def test_a_queue_that_cannot_be_opened_stops_no_other_feed(tmp_path):
    with made(tmp_path / "s", 50) as store:
        put(store, 0, 50, queue_id=1)
        store._compactions.feed(store)
    with open(pair_files(tmp_path / "s", "compactionLog")[0], "r+b") as file:
        file.truncate(100)
    with model.open_store(tmp_path / "s") as store:
        put(store, 50, 20, queue_id=1)
        with pytest.raises(errors.CorruptionError):
            store._compactions.feed(store)
        assert store._compactions._log("C", 1, False).segments.bounds()[1] == 69
        with pytest.raises(errors.CorruptionError):
            store.clean(hours=0)
        assert store._queues_of("C")[1][1] == 0


@pytest.mark.untraced       # entries that no sync covers are compared with the queue at the next feed
def test_a_sync_that_failed_for_want_of_space_is_not_tried_again(tmp_path):
    probe = ProbeIo()
    with made(tmp_path / "s", 10, io=probe) as store:
        put(store, 10, 60)
        probe.fail("fdatasync", 1, errno.ENOSPC, path="/compactionCq/")
        for _ in range(2):
            with pytest.raises(OSError):
                store._compactions.feed(store)
        with pytest.raises(errors.DurabilityError):
            store.clean(hours=0)


@pytest.mark.parametrize(("kind", "code"), [("pwrite", errno.ENOSPC), ("pwrite", errno.EDQUOT), ("pwrite", errno.ENOMEM),
                                            ("open", errno.EMFILE), ("open", errno.ENFILE), ("open", errno.ENOMEM)])
def test_a_feed_that_lacks_something_is_tried_again_and_synced(tmp_path, kind, code):
    probe = ProbeIo()
    with made(tmp_path / "s", 10, io=probe) as store:
        put(store, 10, 10)
        probe.fail(kind, 1, code, path="/compactionCq/")
        with pytest.raises(OSError):
            store._compactions.feed(store)
        assert probe.hits == 1
        store._compactions.feed(store)
        assert store._compactions._log("C", 0, False).segments.bounds() == (0, 19)
        calls = [call.kind for call in probe.trace() if call.path and "/compactionCq/" in call.path
                 and call.kind in ("pwrite", "fdatasync")]
        assert calls[-1] == "fdatasync"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_compaction_that_fails_gives_its_space_back(tmp_path, code):
    probe = ProbeIo()
    with made(tmp_path / "s", 100, io=probe) as store:
        expected, content = values(store), [content_of(f) for f in pair_files(store.path, "compactionLog")]
        probe.fail("pwrite", 1, code, path="/compacting/")
        with pytest.raises(OSError):
            store.compact("C")
        assert [content_of(f) for f in pair_files(store.path, "compactionLog")] == content
        left = [f for place, _, names in os.walk(tmp_path / "s/compaction") if place.endswith("compacting") for f in names]
        assert left == []
        assert store.compact("C")[0].kept >= 10 and values(store) == expected


@pytest.mark.untraced       # a name that is not on the device is what it is about
def test_a_replacement_whose_name_was_not_synced_is_not_believed(tmp_path, monkeypatch):
    with made(tmp_path / "s", 100) as store:
        expected, real, failed = values(store), store._files.sync_dir, []
        def sync_dir(path):
            if path.endswith("/compaction") and not failed:
                failed.append(path)
                raise OSError(errno.EIO, "Input/output error")
            real(path)
        monkeypatch.setattr(store._files, "sync_dir", sync_dir)
        for _ in range(2):
            with pytest.raises(OSError):
                store.compact("C")
        assert failed and os.path.exists(disk.Places(store.path, "C", 0).replacing)
        with pytest.raises(errors.DurabilityError):
            store.clean(hours=0)
        assert values(store) == expected
    with model.open_store(tmp_path / "s") as store:
        store.compact("C")
        assert values(store) == expected and not os.path.exists(disk.Places(store.path, "C", 0).replacing)


@pytest.mark.parametrize("how", ["closed", "put aside"])
def test_a_compaction_counts_no_more_once_its_queue_has_changed(tmp_path, monkeypatch, how):
    with made(tmp_path / "s", 100) as store:
        log = store._compactions._log("C", 0, True)
        content = [content_of(f) for f in pair_files(store.path, "compactionLog")]
        real = type(log)._copy
        def copy(this, *arguments):
            found = real(this, *arguments)
            if how == "closed":
                this.end()
            else:
                with this._lock:
                    this._put_aside(0)
            return found
        monkeypatch.setattr(type(log), "_copy", copy)
        assert store.compact("C") == []
        assert not [f for f in os.listdir(tmp_path / "s/compaction") if f.endswith(".replacing")]
        now = pair_files(store.path, "compactionLog")
        assert [content_of(f) for f in now] == (content if how == "closed" else [])


def test_damaged_positions_are_put_aside(tmp_path):
    with made(tmp_path / "s", 100) as store:
        store.compact("C")
        expected = values(store)
    for name in ("position-checkpoint", "position-checkpoint.bak"):
        (tmp_path / "s/compaction" / name).write_text("{")
    with model.open_store(tmp_path / "s") as store:
        put(store, 100, 60)
        assert store.compact("C") and values(store).keys() == expected.keys()
        assert disk.Positions.of(store._files, store.path).get("C", 0) > 0
    assert {f for f in os.listdir(tmp_path / "s/.salvage") if f.startswith("position")} == {
        "position-checkpoint.0", "position-checkpoint.bak.0"}


def test_a_follower_is_not_deceived_by_a_clock_that_stands(tmp_path, monkeypatch):
    """Two changes of a directory within one tick of the file system's clock."""
    monkeypatch.setattr("rmq_store.services.compaction.log.SETTLED_NS", 1 << 62)
    with made(tmp_path / "s", 10) as store, MessageStore.open(tmp_path / "s", readonly=True, **model.SMALL) as reader:
        log = reader._compactions._log("C", 0, False)
        assert log.follow().bounds() == (0, 9)
        times = [os.stat(place).st_mtime_ns for place in log.places.both]
        put(store, 10, 40)
        store._compactions.feed(store)
        for place, when in zip(log.places.both, times, strict=True):
            os.utime(place, ns=(when, when))
        assert log.follow().bounds() == (0, 49)


# ---- the file that says which pairs count

def replacing(root, **content):
    path = disk.Places(str(root), "C", 0).replacing
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
    return path


def starts_of(root):
    return [int(os.path.basename(path)) for path in pair_files(root, "compactionLog")]


@pytest.mark.parametrize("what", ["stays", "new", "no crc", "crc", "type"])
def test_names_of_a_replacement_that_are_wrong_delete_nothing(tmp_path, what):
    root = tmp_path / "s"
    with made(root, 60, keys=60) as store:
        expected = values(store)
        clean(store)
    starts = starts_of(root)
    assert len(starts) > 2
    content = {"stays": {"new": [], "stays": starts[-1] + 1}, "new": {"new": [starts[0] + 1], "stays": starts[-1]},
               "no crc": {"new": [], "stays": 9_000_000_000}, "crc": {"new": [], "stays": starts[-1], "crc": 5},
               "type": {"new": [True], "stays": starts[-1]}}[what]
    path = replacing(root, **content)
    assert [f.severity for f in verify(root) if f.kind == "compaction_file" and f.path == path] == ["corrupt"]
    for readonly in (True, False):
        with model.open_store(root, readonly=readonly) as store:
            with pytest.raises(errors.CorruptionError, match=r"C_0\.replacing"):
                values(store)
            with pytest.raises(errors.CorruptionError, match=r"C_0\.replacing"):
                store.compact("C", dry_run=readonly)
    assert starts_of(root) == starts
    os.unlink(path)
    with model.open_store(root) as store:
        assert values(store) == expected


@pytest.mark.parametrize("step", [0, 3])
def test_a_replacement_without_a_checksum_is_ended(tmp_path, monkeypatch, step):
    """As a process of before left it, killed after some renames and unlinks. test_states.py kills those of now."""
    with made(tmp_path / "s", 100) as store, monkeypatch.context() as patch:
        expected, begun, real_begin = values(store), [], disk.begin_replacing
        clean(store)
        patch.setattr(disk, "begin_replacing", lambda *a: (real_begin(*a), begun.append(0)))
        for name in ("rename", "unlink"):
            real = getattr(store._files, name)
            def call(*paths, real=real):
                if len(begun) == step + 1:
                    raise OSError(errno.EIO, "killed here")
                real(*paths)
                begun.extend(begun[:1])
            patch.setattr(store._files, name, call)
        with pytest.raises(OSError, match="killed here"):
            store.compact("C")
    path = disk.Places(str(tmp_path / "s"), "C", 0).replacing
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    assert content.pop("crc") >= 0 and content["new"]
    replacing(tmp_path / "s", **content)
    for readonly in (True, False):
        with model.open_store(tmp_path / "s", readonly=readonly) as store:
            assert values(store) == expected
    assert not os.path.exists(path)

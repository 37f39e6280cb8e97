"""`repair --undo`: the log has its bytes again, queues and index are the ones that were there, also after a kill in between."""
import contextlib
import errno
import json
import os
import shutil

import pytest

from rmq_store import MessageStore, errors, scrub
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.integrity import undoing
from rmq_store.services.integrity.repair import repair
from rmq_store.services.integrity.undoing import undo

SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000,
         "manifest_interval_ms": 1}
pytestmark = pytest.mark.untraced       # files are changed behind the trace's back


def shape(root):
    """All of the store but .salvage and what opening it leaves."""
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*"))
            if p.is_file() and p.relative_to(root).parts[0] not in (".salvage", ".alloc", "lock", "config", ".stats.json")}


def filled(root):
    with MessageStore.open(root, **SMALL) as store:
        puts = [store.put("TU"[i % 2], b"message %d" % i * 20, queue_id=i % 3, keys=f"k{i}") for i in range(300)]
        store.flush()
    return puts


def write(root, at, data):
    size = SMALL["segment_size_bytes"]
    with (root / "commitlog" / f"{at // size * size:020d}").open("r+b") as file:
        file.seek(at % size)
        file.write(data)


def damage(root, puts, what):
    if what in ("body", "all"):
        write(root, puts[100].offset + 95, b"\xff\xff")
    if what in ("hole", "all"):
        write(root, puts[150].offset, bytes(puts[150].size + puts[151].size))
    if what in ("queues", "all"):
        shutil.rmtree(root / "consumequeue" / "T")
    if what in ("tail", "all"):
        write(root, puts[-1].offset + puts[-1].size + 50, b"noise" * 30)
    if what in ("short", "all"):
        last = sorted((root / "commitlog").iterdir())[-1]
        os.truncate(last, (1 << 14) - 4096)
    if what == "manifest":
        scrub(root, bytes_per_s=None, make_manifests=True)
        next((root / ".manifest").glob("0*")).write_bytes(b"rotten")
    if what == "killed":
        write(root, puts[100].offset + 95, b"\xff\xff")
        (root / "abort").touch()


KINDS = ["body", "hole", "queues", "tail", "short", "manifest", "killed", "all"]


@pytest.mark.parametrize("what", KINDS)
def test_everything_is_what_it_was(tmp_path, what):
    root = tmp_path / "s"
    damage(root, filled(root), what)
    before = shape(root)
    assert repair(root, dry_run=False, open_store=MessageStore.open).steps
    repaired = shape(root)
    assert repaired != before
    said = []
    undo(root, say=lambda step, path: said.append(step), open_store=MessageStore.open)
    after = shape(root)
    if what in ("tail", "short"):       # nothing was built again: what is derived is as the open left it
        before, after = ({k: v for k, v in x.items() if "commitlog" in k} for x in (before, after))
    assert said and after == before
    assert repair(root, dry_run=False, open_store=MessageStore.open).left == []
    again = shape(root)
    assert {k: v for k, v in again.items() if "commitlog" in k} == {k: v for k, v in repaired.items() if "commitlog" in k}


@pytest.mark.parametrize("nth", [pytest.param(n, marks=[] if n in (1, 2, 5, 9, 13) else pytest.mark.slow)
                                 for n in range(1, 14)])
def test_killed_at_any_change_it_can_be_done_again(tmp_path, nth):
    root = tmp_path / "s"
    damage(root, filled(root), "all")
    before = shape(root)
    repair(root, dry_run=False, open_store=MessageStore.open)
    probe = ProbeIo(keep_bytes=False)
    probe.freeze("rename", nth)
    try:
        undo(root, say=lambda step, path: None, open_store=MessageStore.open, _io=probe)
    except Exception:
        assert probe.frozen
    if probe.frozen and not list((root / ".salvage").glob("repair-*.undone")):     # else that was its last step
        undo(root, say=lambda step, path: None, open_store=MessageStore.open)
    assert shape(root) == before


def test_it_is_refused_where_it_would_lose_something(tmp_path, rmqstore):
    root = tmp_path / "s"
    damage(root, filled(root), "body")
    assert rmqstore("repair", root, "--undo")[0] == 3
    repair(root, dry_run=False, open_store=MessageStore.open)
    with MessageStore.open(root, **SMALL) as store:
        store.put("T", b"since")
        with pytest.raises(errors.StoreLocked):
            undo(root, say=lambda step, path: None, open_store=MessageStore.open)
    code, _, err = rmqstore("repair", root, "--undo")
    assert code == 3 and "messages were put since" in err


def test_the_command(tmp_path, rmqstore):
    root = tmp_path / "s"
    damage(root, filled(root), "hole")
    before = shape(root)
    assert rmqstore("repair", root)[0] == 0
    code, out, _ = rmqstore("repair", root, "--undo")
    assert code == 0 and "put back" in out and shape(root) == before
    assert rmqstore("repair", root, "--undo")[0] == 3
    assert rmqstore("repair", root, "--undo", "--restore")[0] == 64


@pytest.mark.parametrize("change", [
    lambda c: c["steps"][0].update(file="../../etc/passwd"), lambda c: c["steps"].append({"step": "all"}),
    lambda c: c["steps"].append({"step": "manifest", "file": "x", "copy": "../checkpoint"}), lambda c: c.pop("copies"),
    lambda c: c.update(steps=5), lambda c: c["steps"].append({"step": "rebuild", "aside": "/tmp", "names": ["x"]})])
def test_a_journal_that_lies(tmp_path, change):
    root = tmp_path / "s"
    damage(root, filled(root), "body")
    repair(root, dry_run=False, open_store=MessageStore.open)
    (journal,) = (root / ".salvage").glob("repair-*.json")
    content = json.loads(journal.read_text())
    change(content)
    journal.write_text(json.dumps(content))
    with pytest.raises(errors.CorruptionError, match="repair-"):
        undo(root, say=lambda step, path: None, open_store=MessageStore.open)


def put_more(root):
    with MessageStore.open(root) as store:
        for i in range(50):
            store.put("T", b"new %d" % i)
        store.flush()
        end = store.max_log_offset
    return end


@pytest.mark.parametrize("what", ["body", "killed", "queues"])
def test_nobody_writes_while_an_undo_is_not_done(tmp_path, rmqstore, what, monkeypatch):
    root = tmp_path / "s"
    damage(root, filled(root), what)
    before = shape(root)
    repair(root, dry_run=False, open_store=MessageStore.open)
    with monkeypatch.context() as patched:
        for name in ("_bridge", "_rebuild", "_cut"):
            patched.setattr(undoing._Undo, name, lambda self, *a: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(OSError, match="No space"):
            undo(root, say=lambda step, path: None, open_store=MessageStore.open)
    half = shape(root)
    for call in (lambda: MessageStore.open(root), lambda: repair(root, dry_run=False, open_store=MessageStore.open),
                 lambda: repair(root, dry_run=True)):
        with pytest.raises(errors.StoreRefusesToLoad, match=f"one that was broken off.*rmqstore repair --undo {root}"):
            call()
    assert shape(root) == half
    MessageStore.open(root, readonly=True).close()
    assert rmqstore("repair", root, "--undo")[0] == 0 and shape(root) == before
    repair(root, dry_run=False, open_store=MessageStore.open)
    put_more(root)


@pytest.mark.parametrize("what, nth", [("body", 2), ("body", 3), ("queues", 2), pytest.param("all", 3, marks=pytest.mark.slow),
                                       pytest.param("all", 5, marks=pytest.mark.slow)])
def test_a_repair_that_was_broken_off_is_not_undone_over_new_messages(tmp_path, what, nth):
    """Its journal does not say where the log ended after it."""
    root = tmp_path / "s"
    damage(root, filled(root), what)
    probe = ProbeIo(keep_bytes=False)
    probe.freeze("rename", nth)
    try:
        repair(root, dry_run=False, open_store=MessageStore.open, _io=probe)
    except Exception:
        assert probe.frozen
    if not list((root / ".salvage").glob("repair-*.json")):
        return
    shutil.copytree(root, tmp_path / "other")
    undo(tmp_path / "other", say=lambda step, path: None, open_store=MessageStore.open)     # nothing was put: it is undone
    try:
        end = put_more(root)
    except errors.StoreRefusesToLoad:       # a file is still short
        return
    with contextlib.suppress(errors.StoreStateError):       # it goes through where it only gives a file its length back
        undo(root, say=lambda step, path: None, open_store=MessageStore.open)
    with MessageStore.open(root, readonly=True) as store:
        assert store.max_log_offset == end and sum(bytes(m.body).startswith(b"new") for m in store.scan("T")) == 50


@pytest.mark.parametrize("queues", [False, True])
def test_a_file_made_ahead_that_was_short_does_not_stop_an_undo(tmp_path, queues):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as store:
        for i in range(40):
            store.put("T", b"message %d" % i * 20)
        assert store.wait_dispatched(timeout=60)
    (root / "abort").touch()
    log = sorted((root / "commitlog").iterdir())
    ahead = root / "commitlog" / f"{int(log[-1].name) + (1 << 14):020d}"
    if log[-1].read_bytes().strip(b"\0"):
        ahead.touch()
    else:
        ahead = log[-1]
    with ahead.open("r+b") as file:
        file.truncate(5000)
    if queues:
        os.truncate(next((root / "consumequeue/T/0").iterdir()), 200)
    repair(root, dry_run=False, open_store=MessageStore.open)
    undo(root, say=lambda step, path: None, open_store=MessageStore.open)
    assert not list((root / ".salvage").glob("*.undoing"))
    if queues:
        assert next((root / "consumequeue/T/0").iterdir()).stat().st_size == 200
        repair(root, dry_run=False, open_store=MessageStore.open)
    with MessageStore.open(root) as store:
        assert store.wait_dispatched(timeout=60)
        assert sum(1 for _ in store.scan("T", 0)) == 40


@pytest.mark.parametrize("what", ["body", "killed", "queues"])
def test_a_repair_that_died_in_the_end_is_not_undone_over_new_messages(tmp_path, monkeypatch, what):
    root = tmp_path / "s"
    damage(root, filled(root), what)
    before = shape(root)
    with monkeypatch.context() as patched:
        patched.setattr(undoing.Journal, "end", lambda self, end: (_ for _ in ()).throw(OSError(errno.EIO, "here")))
        with pytest.raises(OSError, match="here"):
            repair(root, dry_run=False, open_store=MessageStore.open)
    shutil.copytree(root, tmp_path / "other")
    undo(tmp_path / "other", say=lambda step, path: None, open_store=MessageStore.open)
    assert shape(tmp_path / "other") == before
    put_more(root)
    with pytest.raises(errors.StoreStateError, match="messages were put since"):
        undo(root, say=lambda step, path: None, open_store=MessageStore.open)
    with MessageStore.open(root) as store:
        assert sum(bytes(m.body).startswith(b"new") for m in store.scan("T")) == 50

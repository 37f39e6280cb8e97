"""Restores: what the backup held, whole or not there, and refused where a list or a byte is not what was written."""
import itertools
import os
import shutil
import subprocess
from errno import ENOSPC
from pathlib import Path

import pytest

from rmq_store import MessageStore, backup, check_backup, errors, list_backups, restore
from rmq_store.base.io._io import IoTable, ProbeIo
from rmq_store.base.io.files import ControlFiles
from rmq_store.services.backup import content as content_module
from tests.moving.conftest import SMALL, rows
from tests.moving.test_backup import fill, quiet


def test_restore(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 2000)
        first = store.backup(tmp_path / "b")
        fill(store, 500, b"more")
        store.backup(tmp_path / "b")
    assert restore(tmp_path / "b", tmp_path / "newest").end > first.end
    restore(tmp_path / "b", tmp_path / "older", os.path.basename(first.path))
    assert rows(tmp_path / "newest") == rows(tmp_path / "s") and len(rows(tmp_path / "older")) == 2000
    assert quiet(tmp_path / "newest") == quiet(tmp_path / "older") == []
    with pytest.raises(errors.StoreStateError, match="a restore replaces nothing"):
        restore(tmp_path / "b", tmp_path / "s")
    with pytest.raises(errors.ConfigError, match="has no backup"):
        restore(tmp_path / "b", tmp_path / "x", "yesterday")
    with pytest.raises(FileNotFoundError, match="no directory of backups"):
        restore(tmp_path / "s", tmp_path / "x")


def test_a_rotten_backup_is_not_restored(memory_disk):
    tmp_path = memory_disk
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 600)
        info = store.backup(tmp_path / "b")
    for victim in sorted(p for p in Path(info.path).rglob("*") if p.is_file() and p.stat().st_size > 100):
        kept = victim.read_bytes()
        at = len(kept) // 3
        victim.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1:])
        with pytest.raises(errors.CorruptionError, match="another backup"):
            restore(tmp_path / "b", tmp_path / "r")
        if victim.name != ".backup.json":
            assert [f.path for f in check_backup(tmp_path / "b")] == [str(victim)]
        assert not (tmp_path / "r").exists()
        victim.write_bytes(kept)
    (Path(info.path) / "checkpoint").rename(tmp_path / "aside")
    assert [f.detail for f in check_backup(tmp_path / "b")] == ["the file is missing"]
    (tmp_path / "aside").rename(Path(info.path) / "checkpoint")
    restore(tmp_path / "b", tmp_path / "r")


def test_a_restore_killed_at_every_call(tmp_path, memory_disk):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 300)
        store.backup(memory_disk / "b")
    for nth in itertools.count(1, 5):
        io = ProbeIo(keep_bytes=False)
        io.freeze("mutate", nth)
        try:
            restore(memory_disk / "b", memory_disk / "r", _io=io)
        except (OSError, errors.CorruptionError):
            pass
        if not io.frozen:
            break
        if (memory_disk / "r").exists():
            shutil.rmtree(memory_disk / "r")
            continue
        restore(memory_disk / "b", memory_disk / "r")
        assert rows(memory_disk / "r") == rows(tmp_path / "s")
        shutil.rmtree(memory_disk / "r")
    assert nth > 20


def test_a_full_disk_leaves_nothing_of_a_restore_and_names_the_cure(tmp_path, memory_disk):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 300)
        store.backup(memory_disk / "b")
    for kind in ("pwrite", "fallocate"):
        io = ProbeIo(keep_bytes=False)
        io.fail(kind, 1, ENOSPC, memory_disk, sticky=True)
        with pytest.raises(errors.DiskFull, match=r"restoring to .* nothing of it is left") as full:
            restore(memory_disk / "b", memory_disk / "r", _io=io)
        assert str(memory_disk / "r") in str(full.value)
        assert os.listdir(memory_disk) == ["b"]
    restore(memory_disk / "b", memory_disk / "r")


HOSTILE = [{"files": {"../out": {}}}, {"files": {"../../out": {}}}, {"files": {"commitlog/../../out": {}}},
           {"files": {".": {}}}, {"files": {"checkpoint": 5}}, {"files": {"checkpoint": {"size": 1}}}, {"files": []},
           {"files": None}, {"begin": "0"}, {"source": None}, {"other": 1}]


@pytest.mark.parametrize("wrong", HOSTILE, ids=str)
def test_a_list_that_is_none_is_refused_and_leads_nowhere(tmp_path, wrong):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 10)
        made = store.backup(tmp_path / "b")
    listed = content_module.read_list(made.path)
    about = listed["files"]["checkpoint"]
    if isinstance(wrong.get("files"), dict) and "checkpoint" not in wrong["files"]:
        wrong = {"files": {**listed["files"], **dict.fromkeys(wrong["files"], about)}}
        for place in (tmp_path / "out", tmp_path / "b" / "out"):
            shutil.copy(os.path.join(made.path, "checkpoint"), place)
    content_module.write_list(ControlFiles(IoTable()), made.path, {**listed, **wrong})
    for call in (lambda: list_backups(tmp_path / "b"), lambda: check_backup(tmp_path / "b"),
                 lambda: restore(tmp_path / "b", tmp_path / "deep" / "r")):
        with pytest.raises(errors.CorruptionError, match="list of a backup"):
            call()
    assert not (tmp_path / "deep" / "out").exists()


def test_a_list_that_has_rotten_harms_its_own_backup_alone(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 300)
        made = [store.backup(tmp_path / "b") for _ in range(3)]
    for victim in (0, 2):
        path = Path(made[victim].path) / ".backup.json"
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(errors.CorruptionError, match="list of a backup"):
            restore(tmp_path / "b", tmp_path / "r", os.path.basename(made[victim].path))
    restore(tmp_path / "b", tmp_path / "r", os.path.basename(made[1].path))
    assert backup(tmp_path / "s", tmp_path / "b").linked_bytes == 0
    restore(tmp_path / "b", tmp_path / "newest")
    assert rows(tmp_path / "r") == rows(tmp_path / "newest") == rows(tmp_path / "s")


def test_two_restores_to_one_directory(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 300)
        store.backup(tmp_path / "b")

    def again(size):
        with pytest.raises(errors.StoreStateError, match="another restore"):
            restore(tmp_path / "b", tmp_path / "r")
        seen.append(size)

    seen = []
    restore(tmp_path / "b", tmp_path / "r", progress=again)
    assert seen and rows(tmp_path / "r") == rows(tmp_path / "s") and quiet(tmp_path / "r") == []
    assert sorted(os.listdir(tmp_path)) == ["b", "r", "s"]


def test_a_restore_through_a_link_and_onto_another_disk(tmp_path, memory_disk):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 10)
        store.backup(tmp_path / "b")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    restore(tmp_path / "b", tmp_path / "link")
    assert rows(tmp_path / "there") == rows(tmp_path / "s") and (tmp_path / "link").is_symlink()
    mount = tmp_path / "mount"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(mount)], capture_output=True, check=False).returncode:
        pytest.skip("cannot mount")
    try:
        with pytest.raises(errors.StoreStateError, match="mounted"):
            restore(tmp_path / "b", mount)
        assert not (tmp_path / "mount.partial").exists()
        restore(tmp_path / "b", mount / "store")
        assert rows(mount / "store") == rows(tmp_path / "s")
    finally:
        subprocess.run(["umount", str(mount)], check=True)

"""The directories of an open store get other names, or their names get other directories: it works on those that it opened."""
import errno
import itertools
import os

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._dirs import forget, watch
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError

SIZES = {"segment_size_bytes": 65536, "consumequeue_file_size_bytes": 400, "index_slots": 20, "index_entries_max": 40,
         "message_size_max_bytes": 8192}


def fill(store, letter, count=60):
    for i in range(count):
        store.put("T", letter * 2000, keys=f"k{i}")


def bodies(root, **more):
    with MessageStore.open(root, **SIZES, **more) as store:
        return {bytes(m.body)[:1] for m in store.scan()}, store.max_offset("T", 0)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """here(name): a directory of that name is made, and is the working directory."""
    def go(name):
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / name)
    return go


PATHS = {"commitlog_path": "log", "consumequeue_path": "queues", "index_path": "ix"}


@pytest.mark.parametrize("option", PATHS)
def test_relative_paths_are_those_of_the_open(tmp_path, here, option):
    given = {option: PATHS[option]}
    here("b")
    with MessageStore.open("s", **SIZES, **given) as store:
        fill(store, b"B")
    here("a")
    with MessageStore.open("s", **SIZES, **given) as store:
        fill(store, b"A")
        here("b")
        copy = store.backup(tmp_path / "backups")
        assert bodies(copy.path)[0] == {b"A"}
        here("nothing")
        store.scrub()
        assert [f for f in store.check_self() if f.severity == "corrupt"] == []
        assert all(float(value) >= 0 for name, value in store.runtime_info().items() if "DiskRatio" in name)
        fill(store, b"A")
        store.delete_topics("none")
        assert not os.listdir(".")
    here("a")
    assert bodies("s", **given) == ({b"A"}, 120)


def test_a_link_that_is_switched(tmp_path):
    for name in "ab":
        MessageStore.open(tmp_path / name, **SIZES).close()
    link = tmp_path / "current"
    link.symlink_to("a")
    with MessageStore.open(link, **SIZES) as store:
        fill(store, b"A", 20)
        link.unlink()
        link.symlink_to("b")
        with MessageStore.open(link, **SIZES) as other:
            fill(other, b"B")
            fill(store, b"A")
            store.offsets.commit("g", "T", 0, 7)
            assert store.wait_dispatched(10) and other.wait_dispatched(10)
    assert bodies(tmp_path / "a") == ({b"A"}, 80)
    assert bodies(tmp_path / "b") == ({b"B"}, 60)
    with MessageStore.open(tmp_path / "b", **SIZES) as other:
        assert other.offsets.query("g", "T", 0) == -1


@pytest.mark.parametrize("taken", [True, False], ids=["another store has the name", "nobody has the name"])
def test_a_root_that_is_renamed(tmp_path, taken):
    """What was acknowledged lies in the directory that was opened, and the other one has nothing of it."""
    old, new = tmp_path / "s", tmp_path / "moved"
    store = MessageStore.open(old, **SIZES)
    fill(store, b"A", 20)
    assert store.wait_dispatched(10)
    old.rename(new)
    if taken:
        with MessageStore.open(old, **SIZES) as other:
            fill(other, b"B", 30)
            other.offsets.commit("g", "T", 0, 30)
    before = sorted(str(path) for path in old.rglob("*"))
    acknowledged, told = 20, ""
    for _ in range(200):
        try:
            store.put("T", b"A" * 2000)
            acknowledged += 1
        except (RmqStoreError, OSError) as error:
            told = str(error)
            break
    assert "renamed, replaced or mounted over" in told
    store.offsets.commit("g", "T", 0, 1)
    with pytest.raises(OSError, match="renamed, replaced or mounted over"):
        store.offsets.flush()
    with pytest.raises((RmqStoreError, OSError)):
        store.close(strict=True)
    assert sorted(str(path) for path in old.rglob("*")) == before
    if taken:
        assert bodies(old) == ({b"B"}, 30)
    assert bodies(new) == ({b"A"}, acknowledged)


def test_only_what_changes_a_directory_by_name_is_refused(tmp_path):
    probe = ProbeIo()
    (tmp_path / "d").mkdir()
    (tmp_path / "d/old").write_bytes(b"x")
    watch(probe, tmp_path / "d")
    (tmp_path / "d").rename(tmp_path / "e")
    (tmp_path / "d").mkdir()
    for call in (lambda: probe.open(tmp_path / "d/new", os.O_RDWR | os.O_CREAT), lambda: probe.unlink(tmp_path / "d/old"),
                 lambda: probe.rename(tmp_path / "e/old", tmp_path / "d/old"), lambda: probe.mkdir(tmp_path / "d/x"),
                 lambda: probe.rmdir(tmp_path / "e")):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.ESTALE
    probe.close(probe.open(tmp_path / "e/old", os.O_RDONLY))
    forget(probe)
    probe.mkdir(tmp_path / "d/x")


def test_a_commit_log_directory_that_is_replaced(tmp_path):
    store = MessageStore.open(tmp_path / "s", **SIZES)
    fill(store, b"A", 5)
    (tmp_path / "s/commitlog").rename(tmp_path / "s/was")
    (tmp_path / "s/commitlog").mkdir()
    acknowledged = itertools.count(5)
    with pytest.raises((RmqStoreError, OSError), match="renamed, replaced or mounted over"):
        while next(acknowledged) < 200:
            store.put("T", b"A" * 2000)
    assert not any((tmp_path / "s/commitlog").iterdir())
    with pytest.raises(OSError):
        store.close()
    (tmp_path / "s/commitlog").rmdir()
    (tmp_path / "s/was").rename(tmp_path / "s/commitlog")
    assert bodies(tmp_path / "s") == ({b"A"}, next(acknowledged) - 1)

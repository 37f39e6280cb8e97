"""A file system that is really full: a tmpfs of limited size, with one part of a store on it at a time. Needs root."""
import errno
import io
import os
import re
import subprocess

import pytest

from rmq_store import MessageStore
from rmq_store.cli.main import main
from rmq_store.errors import DiskFull

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")]
OPTIONS = {"segment_size_bytes": 1 << 18, "consumequeue_file_size_bytes": 20 * 1024, "index_slots": 100,
           "index_entries_max": 500, "message_size_max_bytes": 60_000, "flush_interval_ms": 20}


def look(store, count):
    assert [bytes(m.body) for m in store.scan("T", 0)] == [b"%d" % i for i in range(count)]
    assert [bytes(m.body) for m in store.query_key("T", f"k{count - 1}")] == [b"%d" % (count - 1)]


@pytest.mark.parametrize("part", ["consumequeue_path", "index_path"])
def test_full_at_the_next_queue_or_index_file(tmp_path, small, part):
    place, fill, empty = small
    options = {**OPTIONS, part: str(place / "part")}
    with MessageStore.open(tmp_path / "s", **options) as store:
        store.put("T", b"0", keys="k0")
        assert store.wait_dispatched(10)
        fill()
        for i in range(1, 3000):
            store.put("T", b"%d" % i, keys=f"k{i}")
        assert not store.wait_dispatched(0.2)           # it waits for room ...
        assert store.stats()["errno"] == 0              # ... and that is no fence
        assert store.flush() == store.max_log_offset
        assert bytes(store.get("T", 0, 0).messages[0].body) == b"0"
        empty()
        assert store.wait_dispatched(30)                # by itself
        look(store, 3000)
    with MessageStore.open(tmp_path / "s", **options) as store:
        assert not store.stats()["recovered"]
        look(store, 3000)


def test_closed_while_it_is_full_nothing_is_lost(tmp_path, small):
    place, fill, empty = small
    options = {**OPTIONS, "consumequeue_path": str(place / "part"), "close_timeout_ms": 100}
    store = MessageStore.open(tmp_path / "s", **options)
    store.put("T", b"0", keys="k0")
    assert store.wait_dispatched(10)
    fill()
    for i in range(1, 3000):
        store.put("T", b"%d" % i, keys=f"k{i}")
    with pytest.warns(RuntimeWarning, match="the abort file stays"):
        store.close()
    for _ in range(2):
        with pytest.raises(DiskFull, match=r"open the store again.*readonly=True") as error:  # recovery needs room
            MessageStore.open(tmp_path / "s", **options)
        assert error.value.errno == errno.ENOSPC and str(tmp_path) in error.value.filename
    with MessageStore.open(tmp_path / "s", **options, readonly=True) as store:
        assert len(list(store.scan())) == 3000
        stats, queued = store.stats(), store.max_offset("T", 0)
        last = store.get("T", 0, queued - 1).messages[0]
        assert queued < 3000 and stats["dispatched"] == last.offset + last.size
        assert stats["dispatch_behind_bytes"] == stats["wrote"] - stats["dispatched"] > 0
        del last
    empty()
    with MessageStore.open(tmp_path / "s", **options) as store:
        look(store, 3000)


def test_full_where_checkpoint_abort_and_offsets_are(tmp_path, small):
    """Log, queues and index lie elsewhere: what is left under the root are the small files."""
    place, fill, empty = small
    elsewhere = {name: str(tmp_path / name) for name in ("commitlog_path", "consumequeue_path", "index_path")}
    options = {**OPTIONS, **elsewhere}
    with MessageStore.open(place / "s", **options) as store:
        store.put("T", b"0", keys="k0")
        store.offsets.commit("g", "T", 0, 1)
        store.offsets.flush()
        fill()
        for i in range(1, 100):
            store.put("T", b"%d" % i, keys=f"k{i}", wait=True)      # nothing of the log is there
        store.offsets.commit("g", "T", 0, 2)
        with pytest.raises(OSError) as error:
            store.offsets.flush()
        assert error.value.errno == errno.ENOSPC and store.offsets.query("g", "T", 0) == 2
        empty()
        store.offsets.flush()
        fill()                                                      # the checkpoint is written where it stands
    os.rename(place / "ballast", place / "kept")
    with MessageStore.open(place / "s", **options) as store:        # of new things only the abort file's name is needed
        assert store.offsets.query("g", "T", 0) == 2 and not store.stats()["recovered"]
        look(store, 100)


def test_a_new_store_on_a_full_disk(small, capsys):
    place, fill, empty = small
    fill()
    with pytest.raises(OSError) as error, MessageStore.open(place / "s", **OPTIONS) as store:
        store.put("T", b"x")
    assert error.value.errno == errno.ENOSPC
    assert main(["put", str(place / "s"), "/etc/hostname", "-t", "T", "-o", "segment_size_bytes=262144"]) in (1, 3)
    assert "space" in capsys.readouterr().err
    empty()
    with MessageStore.open(place / "s", **{**OPTIONS, "segment_size_bytes": 1 << 16}) as store:
        store.put("T", b"0", keys="k0", wait=True)


def test_a_full_disk_ends_a_command_that_says_what_it_stored(small, monkeypatch, capsys):
    place, _, empty = small
    (place / "ballast").write_bytes(bytes(100_000))
    sizes = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 20 * 1024, "message_size_max_bytes": 30_000}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"line\n" * 10_000)))
    assert main(["put", str(place / "s"), "-t", "T", *(f"-o{name}={value}" for name, value in sizes.items())]) == 3
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(set(said)) and "Warning:" not in "".join(said)
    told = said[-1]
    assert "commit-log file" in told and "No space left on device" in told and "make room" in told
    stored = int(re.fullmatch(r"rmqstore put: .*; before that: stored (\d+) messages in T/0: .*", told)[1])
    empty()
    with MessageStore.open(place / "s", **sizes) as store:
        assert store.max_offset("T", 0) == stored > 0


def test_a_read_only_file_system(small, capsys):
    place, _, _ = small
    with MessageStore.open(place / "s", **{**OPTIONS, "segment_size_bytes": 1 << 16}) as store:
        store.put("T", b"0", keys="k0")
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    try:
        with pytest.raises(OSError) as error:
            MessageStore.open(place / "s")
        assert error.value.errno == errno.EROFS and str(place) in str(error.value.filename)
        with pytest.raises(OSError) as error:
            MessageStore.open(place / "new")
        assert error.value.errno == errno.EROFS
        assert main(["put", str(place / "s"), os.devnull, "-t", "T"]) == 3 and str(place) in capsys.readouterr().err
        with MessageStore.open(place / "s", readonly=True) as store:
            look(store, 1)
        assert main(["stat", str(place / "s")]) == 0
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
    with MessageStore.open(place / "s") as store:
        look(store, 1)

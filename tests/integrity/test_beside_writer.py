"""Verify and scrub beside a process that puts, rolls files and cleans: what is on its way is no finding."""
import collections
import shutil
import subprocess
import sys
import threading

import pytest

from rmq_store import MessageStore, scrub, verify
from rmq_store.services.backup.source import Source
from rmq_store.services.integrity.verification import Verification

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 4000, "index_slots": 50, "index_entries_max": 100,
         "manifest_interval_ms": 20}

# Puts until its input ends: steadily, or at once as much as a file holds, with keys, into several queues, cleaned now and then.
WRITER = """
import json, sys, threading, time
from rmq_store import MessageStore
options = json.loads(sys.argv[2])
pause, clean = options.pop("pause"), options.pop("clean")
end = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
with MessageStore.open(sys.argv[1], **options) as store:
    n = 0
    print("ready", flush=True)
    while not end.wait(pause):
        for _ in range(1 if pause > 0.005 else 40):
            store.put(f"T{n % 3}", bytes(n * 37 % 900), queue_id=n % 2, keys=f"k{n} l{n % 7}", tags="abc"[n % 3])
            n += 1
        if clean and n % 280 == 0:
            store.clean(hours=0, pace_ms=0)
"""


def writing(root, **options):
    import json
    return subprocess.Popen([sys.executable, "-c", WRITER, str(root), json.dumps(SMALL | options)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def look(root, rounds):
    """What is found in so many rounds of everything that looks, at the same time as well."""
    found: collections.Counter[str] = collections.Counter()

    def verifies():
        for _ in range(rounds):
            found.update(f"verify: {f}" for f in verify(root) if f.severity != "note")

    def scrubs():
        for _ in range(rounds):
            found.update(f"scrub: {f}" for f in scrub(root, bytes_per_s=None).findings if f.severity != "note")

    def run(what):
        try:
            what()
        except Exception as error:      # said by the thread that fails, asserted by the test
            found[f"{what.__name__} raised {error!r}"] += 1

    threads = [threading.Thread(target=run, args=(what,)) for what in (verifies, scrubs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("pace", [0.1, 0.002])
@pytest.mark.parametrize("options", [{"write_path": "mmap", "clean": True}, {"write_path": "pool", "clean": False},
                                     {"flush_mode": "sync", "clean": True}], ids=["mmap-clean", "pool", "sync-clean"])
@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_what_is_on_its_way_is_no_finding(tmp_path, pace, options, rounds):
    root = tmp_path / "s"
    with writing(root, pause=pace, **options) as writer:
        try:
            assert writer.stdout.readline() == "ready\n"
            assert look(root, rounds) == {}
        finally:
            writer.stdin.close()
            assert writer.wait(60) == 0
    assert [f for f in verify(root) if f.severity != "note"] == []


def test_what_is_being_written_is_not_said_to_be_cut(tmp_path):
    """"the next open cuts them", of messages that were put while it looked."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
        store.wait_dispatched(10)
        with open(tmp_path / "s" / "commitlog" / ("0" * 20), "r+b") as file:
            file.seek(store.max_log_offset)
            file.write(b"half a record")
        notes = [f.detail for f in verify(tmp_path / "s") if f.kind == "not_closed"]
        assert notes == ["the store is open for writing: its end moves during the check",
                         "there are bytes after the end of the data: a writer is writing them"]


@pytest.fixture
def arrives(tmp_path):
    """A store without a file, and a function that brings the files of one that was written."""
    with MessageStore.open(tmp_path / "full", **SMALL) as store:
        for n in range(300):
            store.put("T", bytes(900), queue_id=n % 2, keys=f"k{n}")
        store.wait_dispatched(10)
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    return tmp_path / "s", lambda: shutil.copytree(tmp_path / "full", tmp_path / "s", dirs_exist_ok=True)


@pytest.mark.parametrize("look_at", [lambda v: v.load(), lambda v: v.log_files()], ids=["verify", "scrub"])
def test_the_first_files_of_a_store_tell_their_sizes_also_after_the_look_began(arrives, look_at):
    """A look that began when a store had no file took the default sizes, and called the first files of its writer corrupt."""
    root, bring = arrives
    with Verification(root, {}) as looking:
        bring()
        assert list(look_at(looking)) == []
        assert looking.options.segment_size_bytes == SMALL["segment_size_bytes"] and len(looking.starts) > 3
        assert list(looking.run(True, lambda size: None, lambda *_: None)) == []


def test_a_backup_of_a_path_that_began_before_the_first_files(arrives):
    root, bring = arrives
    source = Source(root)
    bring()
    assert sum(len(block.offsets) for block in source.blocks(0)) == 300


def test_a_queue_that_goes_between_two_looks(tmp_path, monkeypatch):
    """As another process rebuilds the queues: what was found in it is none any more."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for n in range(10):
            store.put("T", b"x", queue_id=n % 2)
        store.wait_dispatched(10)
    with (tmp_path / "s" / "consumequeue" / "T" / "0" / f"{0:020d}").open("r+b") as f:
        f.write(b"\0\0\0\0\0\0\1\1")
    assert "queue_wrong" in {f.kind for f in verify(tmp_path / "s")}
    again = Verification.again

    def gone(self):
        shutil.rmtree(tmp_path / "s" / "consumequeue" / "T" / "0", ignore_errors=True)
        return again(self)

    (tmp_path / "s" / "abort").touch()          # somebody writes it
    monkeypatch.setattr(Verification, "again", gone)
    assert "queue_wrong" not in {f.kind for f in verify(tmp_path / "s")}

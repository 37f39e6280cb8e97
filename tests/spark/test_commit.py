"""Commits that are cut off: processes killed at each step and inside the append, and records that a store does not take."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store.errors import CorruptionError, MessageIllegal
from rmq_store.spark import staging
from tests.spark.staging_of import SMALL, batch, bodies, expected, numbers, staged, text

ROOT = Path(__file__).resolve().parents[2]
COUNTS = (700, 0, 500)
COMMITS = """
import json, os, sys
from rmq_store.spark import staging
from tests.spark.staging_of import SMALL, staged

def commit(root, step, appends, write_path, fsync):
    append = staging.append_staged

    def some(store, data, path):
        nonlocal appends
        appends -= 1
        if appends == 0:
            os.kill(os.getpid(), 9)
        return append(store, data, path)

    staging.CHUNK = 4000                    # many appends
    staging.append_staged = some
    staging._step = lambda name: os.kill(os.getpid(), 9) if name == step else None
    staging.commit_staged(root, "app", 0, staged(root, 700, 0, 500), SMALL | {"write_path": write_path}, "job", fsync)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        commit(*json.loads(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def committer():
    """A process that forks one for each commit: they share its imports, which take longer than a commit does."""
    with subprocess.Popen([sys.executable, "-c", COMMITS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        yield process


def killed_commit(committer, root, step="none", appends=0, write_path="mmap", fsync=True):
    print(json.dumps([str(root), step, appends, write_path, fsync]), file=committer.stdin, flush=True)
    assert int(committer.stdout.readline()) == -signal.SIGKILL


@pytest.mark.crash
@pytest.mark.parametrize("write_path", ["mmap", "pool"])
@pytest.mark.parametrize("step", ["pending", "appended", "flushed", "done"])
def test_killed_behind_a_step(committer, tmp_path, step, write_path):
    root = tmp_path / "s"
    killed_commit(committer, root, step, write_path=write_path)
    again = staging.commit_staged(str(root), "app", 0, staged(root, *COUNTS), SMALL, "job")
    assert again.repeated and bodies(root) == expected(1200)
    assert not os.path.exists(root / ".spark" / "job")


@pytest.mark.crash
@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_what_is_called_done_outlives_the_process_without_fsync(committer, tmp_path, write_path):
    """fsync=false leaves the device to the kernel, and leaves nothing in the memory of a process that may be killed."""
    root = tmp_path / "s"
    killed_commit(committer, root, "done", write_path=write_path, fsync=False)
    assert staging.last_done(str(root), "app") == 0 and bodies(root) == expected(1200)


@pytest.mark.crash
@pytest.mark.parametrize("write_path", ["mmap", "pool"])
@pytest.mark.parametrize("appends", [1, 2, 9, 22, 27])
def test_killed_between_append_and_journal(committer, tmp_path, appends, write_path):
    """Over the pool the end of what was appended is lost with the process: it is told from what is there."""
    root = tmp_path / "s"
    killed_commit(committer, root, appends=appends, write_path=write_path)
    assert len(bodies(root)) < 1200
    staging.commit_staged(str(root), "other", 0, [], SMALL)     # whoever comes next completes it
    assert bodies(root) == expected(1200)
    assert staging.commit_staged(str(root), "app", 0, staged(root, *COUNTS), SMALL, "job").repeated
    assert bodies(root) == expected(1200)


def part_of(root, **columns):
    from rmq_store.access.bulk._staged import encode_rows

    staging.enter(str(root), "job", "app", 1 << 40)
    file = staging.StageFile(str(root), "job", 0)
    file.add(encode_rows({"queueId": numbers(0)} | columns, 1), 1)
    return file.finish()


@pytest.mark.parametrize(("columns", "options", "words"), [
    ({"topic": text(b"T"), "body": text(bytes(5 << 20))}, {}, "body size"),
    ({"topic": text(b"T"), "body": text(bytes(70_000))}, SMALL, "record size"),
    ({"topic": text(b"T" * 200), "body": text(b"x")}, {**SMALL, "compat": "4.9"}, "topic")])
def test_a_record_that_the_store_does_not_take_stops_the_commit_and_no_later_one(tmp_path, columns, options, words):
    root = tmp_path / "s"
    options = {"segment_size_bytes": 16 << 20, "index_slots": 100, "index_entries_max": 1000} | options
    good = staged(root, 3)
    with pytest.raises(MessageIllegal, match=words):
        staging.commit_staged(str(root), "app", 0, [*good, part_of(root, **columns)], options, "job")
    assert bodies(root) == []
    assert staging.commit_staged(str(root), "app", 1, staged(root, 3), options, "job").records == 3
    assert bodies(root) == expected(3)


def test_records_are_read_whole_by_pieces_of_any_size(tmp_path, monkeypatch):
    data = batch(300)
    for chunk in (1, 50, 97, 1000, len(data), 1 << 20):
        monkeypatch.setattr(staging, "CHUNK", chunk)
        (part,) = staged(tmp_path / "s", 300)
        assert b"".join(bytes(piece) for piece in staging.pieces(part)) == data, chunk
        staging.verify(part)
    with open(part.path, "r+b") as file:
        file.write(b"\x7f")         # a length that leads out of the file
    with pytest.raises(CorruptionError, match="a whole staged record"):
        list(staging.pieces(part))


def test_a_commit_of_nothing(tmp_path):
    assert staging.commit_staged(str(tmp_path / "s"), "app", 0, [], SMALL).records == 0
    assert bodies(tmp_path / "s") == []


def test_a_record_longer_than_a_piece_is_committed(tmp_path):
    root = tmp_path / "s"
    body = os.urandom(20 << 20)
    part = part_of(root, topic=text(b"T"), body=text(body))
    staging.commit_staged(str(root), "app", 0, [part], {"segment_size_bytes": 64 << 20, "message_size_max_bytes": 32 << 20,
                                                        "index_slots": 100, "index_entries_max": 1000}, "job")
    assert bodies(root) == [body]


def test_what_a_dead_job_left_is_swept_after_a_week(tmp_path):
    root = tmp_path / "s"
    jobs = {"old": "a" * 32, "new": "b" * 32}
    for job in jobs.values():
        staging.enter(str(root), job, "app", 0)
        file = staging.StageFile(str(root), job, 0)
        file.add(batch(1), 1)
        file.finish()
    old = root / ".spark" / jobs["old"]
    for path in (*old.iterdir(), old):
        os.utime(path, (1, 1))
    staging.commit_staged(str(root), "app", 0, [], SMALL)
    assert sorted(os.listdir(root / ".spark")) == [jobs["new"], "journal"]

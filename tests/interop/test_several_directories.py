"""A log in two directories, used in turns by the real store and ours: who continues finds all files, and puts new ones where
the other would."""
import json
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from tests.interop import content, jvm, ours
from tests.interop.test_together import appended, check_all_there

FILES = content.SMALL_FILES
SIZE = FILES["mappedFileSizeCommitLog"]
NAMES = ("commitlog", "commitlog2")         # in the root, so that one copy has all of it


def paths(root: object) -> str:
    return ",".join(f"{root}/{name}" for name in NAMES)


def open_ours(path: Path, version: jvm.JavaStore, **more: object) -> MessageStore:
    return MessageStore.open(path, compat=version.compat, storePathCommitLog=paths(path), **FILES, **more)


def java_settings(root: object) -> list[str]:
    return [*jvm.settings(dict(FILES)), f"storePathCommitLog={paths(root)}"]


def numbers(path: Path) -> list[list[int]]:
    return [sorted(int(file.name) // SIZE for file in (path / name).iterdir()) for name in NAMES]


def same_reading(j: jvm.JavaStore, path: Path) -> int:
    """Both sides read copies of `path` and say the same; returns the count of messages."""
    theirs = path.with_name(f"{path.name}.jsonl")
    assert j.ask("verify", path, theirs, path.parent, *java_settings("@DIR@"))["rc"] == 0
    lines = theirs.read_text().splitlines()
    here = path.with_name(path.name + ".readback")
    mine = ours.readback(path, theirs, j.compat, {**FILES, "commitlog_path": paths(here)})
    ours.check_equal(j.version, lines, mine, crashed=(path / "abort").exists())
    return len(ours.messages(lines))


def put_ours(path: Path, j: jvm.JavaStore, count: int) -> list[dict]:
    puts = []
    with open_ours(path, j) as store:
        for i in range(count):
            body = bytes([i % 256]) * 2000
            done = store.put("Ours", body, queue_id=i % 2, keys=f"ours-{i}")
            puts.append((i % 2, done.queue_offset, body))
    with open_ours(path, j, readonly=True) as store:
        for queue_id, offset, body in puts:
            (message,) = store.get("Ours", queue_id, offset, 1)
            assert bytes(message.body) == body
    return puts


@pytest.mark.slow           # three JVMs by turns
def test_by_turns(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    for j in java:
        j.send("open", tmp_path / j.version, *java_settings(tmp_path / j.version))
        j.send("append", tmp_path / j.version, tmp_path / f"{j.version}.1", 1200, 7)
        j.send("close", tmp_path / j.version)
    for j in java:
        for _ in range(3):
            j.answer()
        path = tmp_path / j.version
        even, odd = numbers(path)
        assert len(even) + len(odd) > 3 and not [n for n in even if n % 2] and not [n for n in odd if n % 2 == 0]
        first = appended(tmp_path / f"{j.version}.1")
        with open_ours(path, j) as store:
            check_all_there(store, first)
        put_ours(path, j, 150)
        even, odd = numbers(path)
        assert len(even) + len(odd) > 7 and not [n for n in even if n % 2] and not [n for n in odd if n % 2 == 0]
        assert same_reading(j, path) == 1350
        j.send("open", path, *java_settings(path))
        j.send("append", path, tmp_path / f"{j.version}.2", 800, 8)
        j.send("close", path)
    for j in java:
        assert j.answer()["load"]
        for _ in range(2):
            j.answer()
        path = tmp_path / j.version
        with open_ours(path, j) as store:
            check_all_there(store, appended(tmp_path / f"{j.version}.1") + appended(tmp_path / f"{j.version}.2"))
            assert store.check_self() == []
        assert same_reading(j, path) == 2150
        # without one of the directories the real store would cut its queues; ours refuses, and reads the rest
        (path / NAMES[1]).rename(path / "away")
        with pytest.raises(errors.LogDirectoryMissing):
            open_ours(path, j)
        with open_ours(path, j, readonly=True) as store:
            left = sum(1 for _ in store.scan())
        assert 0 < left < 2150


@pytest.mark.slow           # tests/takeover has what one leaves
def test_we_recover_a_killed_one(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    doomed = [jvm.JavaStore(version, tmp_path / f"{version}.log") for version in jvm.VERSIONS]
    for j in doomed:
        j.send("open", tmp_path / j.version, *java_settings(tmp_path / j.version))
        j.send("append", tmp_path / j.version, tmp_path / f"{j.version}.puts", 900, 6)
    for j in doomed:
        j.answer()
        j.answer()
        j.kill()
    for j in java:
        path = tmp_path / j.version
        assert same_reading(j, path) == 900
        with open_ours(path, j) as store:
            check_all_there(store, [json.loads(line) for line in (tmp_path / f"{j.version}.puts").read_text().splitlines()])
        put_ours(path, j, 20)
        assert same_reading(j, path) == 920

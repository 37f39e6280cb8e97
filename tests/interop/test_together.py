"""One directory, used in turns: the real store appends after us, recovers what we left, is killed itself; we go on.

Also the lock: neither side opens for writing what the other has open.
"""
import json
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.status import GetStatus
from tests.interop import content, jvm, ours

CASE = content.CASES["together"]
FILES = jvm.settings(dict(CASE.files))


def appended(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_all_there(store: MessageStore, puts: list[dict]) -> None:
    """Every message the real store says it has stored comes back through our public interface."""
    for put in puts:
        result = store.get(put["topic"], put["queueId"], put["queueOffset"], 1)
        assert result.status == GetStatus.FOUND
        (message,) = result
        assert bytes(message.body).hex() == put["body"]
        assert message.msg_id == put["msgId"]
        assert {k: v for k, v in message.properties.items() if k != "WAIT"} \
            == {k: v for k, v in put["props"].items() if k != "WAIT"}


def same_reading(j: jvm.JavaStore, path: Path) -> dict[int, dict]:
    """Both sides read copies of `path` and say the same; returns the messages."""
    theirs = path.with_name(f"{path.name}.jsonl")
    assert j.ask("verify", path, theirs, path.parent, *FILES)["rc"] == 0
    lines = theirs.read_text().splitlines()
    mine = ours.readback(path, theirs, j.compat, dict(CASE.files))
    ours.check_equal(j.version, lines, mine, crashed=(path / "abort").exists())
    return ours.messages(lines)


@pytest.mark.parametrize("start", [pytest.param("closed", marks=pytest.mark.slow), "killed"])
def test_real_store_goes_on_where_we_stopped(start: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    write = ours.write if start == "closed" else ours.write_and_kill
    paths = {j.version: tmp_path / j.version for j in java}
    first = {j.version: write(paths[j.version], "together", compat=j.compat) for j in java}
    for j in java:
        j.send("open", paths[j.version], *FILES)
        j.send("append", paths[j.version], tmp_path / f"{j.version}.puts", 80, 5)
    for j in java:
        assert j.answer()["load"]
        j.answer()
        path = paths[j.version]
        # while it is open there: refused for writing, readable without
        with pytest.raises(errors.StoreLocked):
            MessageStore.open(path, **CASE.files)
        with MessageStore.open(path, readonly=True, **CASE.files) as store:
            check_all_there(store, appended(tmp_path / f"{j.version}.puts"))
        # an image of the running store is what a kill would leave
        ours.copy(path, tmp_path / f"{j.version}.live")
        j.send("close", path)
    for j in java:
        j.answer()
        path = paths[j.version]
        puts = appended(tmp_path / f"{j.version}.puts")
        for state in (path, tmp_path / f"{j.version}.live"):
            assert (state / "abort").exists() == (state != path)
            found = same_reading(j, state)
            assert not [offset for offset in first[j.version] if offset not in found]
            assert len(found) >= len(first[j.version]) + len(puts)
            with MessageStore.open(state, compat=j.compat, **CASE.files) as store:
                check_all_there(store, puts)
                store.put("Shared", b"ours again", queue_id=1, keys="again")
            assert len(same_reading(j, state)) == len(found) + 1


def test_we_recover_a_killed_java_store(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    doomed = [jvm.JavaStore(version, tmp_path / f"{version}.log") for version in jvm.VERSIONS]
    for j in doomed:
        j.send("open", tmp_path / j.version, *FILES)
        j.send("append", tmp_path / j.version, tmp_path / f"{j.version}.puts", 120, 6)
    for j in doomed:
        j.answer()
        j.answer()
        j.kill()
    for j in java:
        path = tmp_path / j.version
        assert len(same_reading(j, path)) == 120
        with MessageStore.open(path, compat=j.compat, **CASE.files) as store:
            check_all_there(store, appended(tmp_path / f"{j.version}.puts"))


def test_lock_keeps_the_real_store_out(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", **CASE.files) as store:
        store.put("Shared", b"held")
        assert [j.ask("lock", tmp_path / "store")["locked"] for j in java] == [True] * len(java)
    assert [j.ask("lock", tmp_path / "store")["locked"] for j in java] == [False] * len(java)
    with MessageStore.open(tmp_path / "store", **CASE.files) as store:
        assert [bytes(m.body) for m in store.get("Shared", 0, 0)] == [b"held"]

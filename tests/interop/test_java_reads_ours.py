"""The real RocketMQ store (4.9.8, 5.3.3, 5.5.1) reads what we wrote, and it reads the same as we do.

Method: a case (content.py) is written by our store, closed or killed; each version opens a copy, recovers it and prints all
that its public interface returns; our `readback` does the same with another copy and is asked the same questions. The lines
must be equal, and nothing that was acknowledged may be missing.
"""
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.interop import content, jvm, ours

# Two of them are both write paths and both flush modes; `make test-interop` crosses them.
ways = pytest.mark.parametrize(("write_path", "flush_mode"), [
    ("mmap", "sync"), ("pool", "async"), pytest.param("mmap", "async", marks=pytest.mark.slow),
    pytest.param("pool", "sync", marks=pytest.mark.slow)])


def compare(java: list[jvm.JavaStore], path: Path, case: content.Case) -> dict[str, dict[int, dict]]:
    """Both sides read copies of `path`. Returns the messages that each version of the real store found."""
    readers = [j for j in java if j.version not in case.not_read_by]
    for j in readers:
        j.send("verify", path, path.with_name(f"{j.version}.jsonl"), path.parent,
               *jvm.settings(ours.java_settings(case, j.version)))
    found = {}
    known: dict[tuple[str, str], list[str]] = {}     # 5.3.3 and 5.5.1 mostly say the same: one read-back answers both
    for j in readers:
        assert j.answer()["rc"] == 0
        theirs = path.with_name(f"{j.version}.jsonl")
        text = theirs.read_text()
        if (j.compat, text) not in known:
            known[j.compat, text] = ours.readback(path, theirs, j.compat, {**case.files, **case.settings})
        lines, mine = text.splitlines(), known[j.compat, text]
        ours.check_equal(j.version, lines, mine, crashed=(path / "abort").exists())
        found[j.version] = ours.messages(lines)
    return found


@pytest.mark.parametrize(("name", "compat"), [(name, c) for name, case in content.KINDS.items() for c in case.compats])
def test_reads_every_kind(name: str, compat: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    case = content.CASES[name]
    acknowledged = ours.write(tmp_path / "store", name, compat=compat)
    for found in compare(java, tmp_path / "store", case).values():
        assert sorted(found) == acknowledged


@ways
def test_reads_every_way_of_writing(write_path: str, flush_mode: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    acknowledged = ours.write(tmp_path / "store", "everything", write_path=write_path, flush_mode=flush_mode)
    for found in compare(java, tmp_path / "store", content.CASES["everything"]).values():
        assert sorted(found) == acknowledged


@ways
def test_recovers_a_killed_store(write_path: str, flush_mode: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    acknowledged = ours.write_and_kill(tmp_path / "store", "killed", write_path=write_path, flush_mode=flush_mode)
    assert (tmp_path / "store" / "abort").exists()
    for version, found in compare(java, tmp_path / "store", content.CASES["killed"]).items():
        lost = [offset for offset in acknowledged if offset not in found]
        if write_path == "pool" and flush_mode == "async":
            # only a suffix may be missing: what the commit thread had not handed to the kernel
            assert lost == acknowledged[len(acknowledged) - len(lost):], version
        else:
            assert not lost, version


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_reads_what_we_delivered(compat: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    case = content.Case((), settings={"messageDelayLevel": "1s 1s"})
    with MessageStore.open(tmp_path / "store", compat=compat, **ours.options(case)) as store:
        for i in range(20):
            store.put("Delivered", b"%d" % i, queue_id=i % 2, tags="a", keys=f"k{i}", delay_level=1 + i % 3, wait=False)
        for queue_id in range(2):
            assert store.wait_for_message("Delivered", queue_id, 9, 60)
    for version, found in compare(java, tmp_path / "store", case).items():
        got = sorted(int(bytes.fromhex(m["body"])) for m in found.values() if m["topic"] == "Delivered")
        assert got == list(range(20)), version

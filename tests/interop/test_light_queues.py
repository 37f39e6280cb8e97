"""Light queues between this library and the real RocketMQ: each reads what the other wrote, goes on in the same queues, and
fills them again after a crash."""
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.interop import jvm

FILES = {"segment_size_bytes": 1 << 20, "consumequeue_file_size_bytes": 6000, "index_slots": 100, "index_entries_max": 1000,
         "enable_lmq": True, "enable_multi_dispatch": True}
THEIRS = jvm.settings({"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": 100,
                       "maxIndexNum": 1000, "enableLmq": True, "enableMultiDispatch": True})
LISTS = ["%LMQ%a,%LMQ%b", "%LMQ%b", "%LMQ%a,%LMQ%c,%LMQ%b"]
NAMES = ("%LMQ%a", "%LMQ%b", "%LMQ%c")


def expected(who: str, count: int, before: dict[str, int]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """By queue: body and offsets of each message; and how many there are behind them."""
    ends, found = dict(before), {name: [] for name in NAMES}
    for i in range(count):
        names = LISTS[i % 3].split(",")
        offsets = ",".join(str(ends[name]) for name in names)
        for name in names:
            found[name].append(f"{who}-{i} {offsets}")
            ends[name] += 1
    return found, ends


def ours(store: MessageStore, name: str) -> list[str]:
    found, at = [], 0
    while result := store.get(name, 0, at, 32):
        found += [f"{bytes(m.body).decode()} {m.properties['INNER_MULTI_QUEUE_OFFSET']}" for m in result]
        at = result.next_offset
    return found


def theirs(j: jvm.JavaStore, path: Path, name: str) -> list[str]:
    return j.ask("read", path, name)["messages"].split(";")[:-1]


def put(store: MessageStore, who: str, count: int) -> None:
    for i in range(count):
        store.put("T", f"{who}-{i}".encode(), queue_id=i % 2, tags="ours", light_queues=LISTS[i % 3].split(","))


@pytest.mark.slow           # tests/takeover has what one leaves
@pytest.mark.parametrize("crashed", [False, True])
def test_each_goes_on_where_the_other_stopped(crashed: bool, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    for j in java:
        path, all_ = tmp_path / j.version, {name: [] for name in NAMES}
        ends = {name: 0 for name in NAMES}
        for turn, (who, count) in enumerate((("one", 50), ("java", 40), ("two", 30))):
            if who == "java":
                j.ask("open", path, *THEIRS)
                assert {name: theirs(j, path, name) for name in NAMES} == all_, (j.version, turn)
                j.ask("light", path, "T", count, *LISTS)
            else:
                with MessageStore.open(path, compat=j.compat, **FILES) as store:
                    assert {name: ours(store, name) for name in NAMES} == all_, (j.version, turn)
                    put(store, who, count)
            more, ends = expected(who, count, ends)
            all_ = {name: all_[name] + more[name] for name in NAMES}
            if who == "java":
                assert {name: theirs(j, path, name) for name in NAMES} == all_, j.version
                j.ask("close", path)
            if crashed:         # as if the queues' files had not reached the device
                for name in NAMES:
                    for file in (path / "consumequeue" / name / "0").iterdir():
                        file.unlink()
                for file in (path / "consumequeue" / "T").glob("*/*"):
                    file.unlink()
                (path / "checkpoint").unlink()
                (path / "abort").touch()
        j.ask("open", path, *THEIRS)
        assert {name: theirs(j, path, name) for name in NAMES} == all_, j.version
        j.ask("close", path)

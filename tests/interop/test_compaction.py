"""Compaction topics between this library and the real RocketMQ 5: each takes the other's compaction log over, reads the newest
values in it, goes on feeding it and compacts it."""
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.interop import jvm

TOPIC, KEYS = "C", 40
FILES = {"segment_size_bytes": 1 << 15, "consumequeue_file_size_bytes": 6000, "index_slots": 100, "index_entries_max": 1000,
         "compaction_file_size_bytes": 1 << 14, "compaction_cq_file_size_bytes": 46 * 60}
THEIRS = jvm.settings({"mappedFileSizeCommitLog": 1 << 15, "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": 100,
                       "maxIndexNum": 1000, "enableCompaction": True, "compactionMappedFileSize": 1 << 14,
                       "compactionCqMappedFileSize": 46 * 60})


def body(i: int) -> str:
    return "" if i % 23 == 0 else f"value-{i}"


def newest(end: int) -> dict[str, tuple[int, str]]:
    found = {f"k{i % KEYS}": (i, body(i)) for i in range(end)}
    return {key: value for key, value in found.items() if value[1]}


def last_of(messages: list[tuple[int, str, str]]) -> dict[str, tuple[int, str]]:
    """What a reader has who begins at the first message, which come in order."""
    offsets = [offset for offset, _, _ in messages]
    assert offsets == sorted(set(offsets))
    found = {key: (offset, text) for offset, key, text in messages}
    return {key: value for key, value in found.items() if value[1]}


def theirs(j: jvm.JavaStore, path: Path) -> list[tuple[int, str, str]]:
    lines = [line.split(" ", 2) for line in j.ask("newest", path, TOPIC)["messages"].split(";")[:-1]]
    return [(int(offset), key, text) for offset, key, text in lines]


def ours(store: MessageStore) -> list[tuple[int, str, str]]:
    found, at = [], 0
    while True:
        result = store.get(TOPIC, 0, at, 32)
        if not result.messages and result.next_offset <= at:
            return found
        found += [(m.queue_offset, m.keys, bytes(m.body).decode()) for m in result]
        at = result.next_offset


def put(store: MessageStore, first: int, count: int) -> None:
    for i in range(first, first + count):
        store.put(TOPIC, body(i).encode(), keys=f"k{i % KEYS}", tags="java")
    store.flush()
    store.wait_dispatched(20)


def table(store: MessageStore) -> dict[str, tuple[int, str]]:
    return {key: (m.queue_offset, bytes(m.body).decode()) for key, m in store.table(TOPIC).items()}


@pytest.fixture
def fives(java: list[jvm.JavaStore]) -> list[jvm.JavaStore]:
    found = [j for j in java if j.compat == "5.x"]
    for j in found:
        j.ask("topic", TOPIC)
    return found


@pytest.mark.slow           # two JVMs by turns
@pytest.mark.parametrize("begins", ["java", "ours"])
def test_each_goes_on_where_the_other_stopped(begins: str, fives: list[jvm.JavaStore], tmp_path: Path) -> None:
    for j in fives:
        path, end = tmp_path / j.version, 0
        for turn in range(4):
            if (turn % 2 == 0) == (begins == "java"):
                assert j.ask("open", path, *THEIRS)["load"], (j.version, turn)
                assert last_of(theirs(j, path)) == newest(end), (j.version, turn)
                j.ask("keyed", path, TOPIC, end, 300, KEYS)
                end += 300
                j.ask("compact", path)
                found = theirs(j, path)
                assert last_of(found) == newest(end), (j.version, turn)
                assert len(found) < end
                j.ask("close", path)
            else:
                with MessageStore.open(path, **FILES) as store:
                    store.topic_table.set_cleanup_policy(TOPIC, "COMPACTION")
                    assert last_of(ours(store)) == newest(end) == table(store), (j.version, turn)
                    put(store, end, 300)
                    end += 300
                    assert store.compact(TOPIC), (j.version, turn)
                    store.clean(hours=0, pace_ms=0)
                    low = store._queues_of(TOPIC)[0][1]
                    assert low > 0 and last_of(ours(store)) == newest(end) == table(store), (j.version, turn)
                with MessageStore.open(path, readonly=True, **FILES) as store:
                    assert last_of(ours(store)) == newest(end) == table(store), (j.version, turn)


@pytest.mark.slow
def test_the_same_messages_make_the_same_bytes(fives: list[jvm.JavaStore], tmp_path: Path) -> None:
    """A directory of RocketMQ, with its compaction logs and without: this library makes these again, byte for byte."""
    for j in fives:
        path = tmp_path / j.version
        j.ask("open", path, *THEIRS)
        j.ask("keyed", path, TOPIC, 0, 500, KEYS)
        j.ask("close", path)
        kept = {f.relative_to(path): f.read_bytes() for f in sorted((path / "compaction").rglob("*")) if f.is_file() and
                f.name.isdigit()}
        (path / "compaction").rename(tmp_path / f"{j.version}-theirs")
        with MessageStore.open(path, **FILES) as store:
            store.topic_table.set_cleanup_policy(TOPIC, "COMPACTION")
            store.flush()
            store._compactions.feed(store)
        made = {f.relative_to(path): f.read_bytes() for f in sorted((path / "compaction").rglob("*")) if f.is_file() and
                f.name.isdigit()}
        assert len(kept) > 10 and made.keys() == kept.keys()
        assert [name for name in kept if made[name] != kept[name]] == [], j.version
        # And what it makes of them by compacting, from the same files.
        again = tmp_path / f"{j.version}-compacted"
        j.ask("open", path, *THEIRS)
        j.ask("compact", path)
        j.ask("close", path)
        (path / "compaction").rename(again)
        (tmp_path / f"{j.version}-theirs").rename(path / "compaction")
        with MessageStore.open(path, **FILES) as store:
            store.compact(TOPIC)
        for f in sorted(again.rglob("*")):
            if f.is_file() and f.name.isdigit():
                assert f.read_bytes() == (path / "compaction" / f.relative_to(again)).read_bytes(), (j.version, f)

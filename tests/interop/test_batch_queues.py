"""Inner batches between this library and the real RocketMQ: each reads what the other wrote, continues the same queues, and
fills them again after a crash. Units of batch queues are compared byte by byte."""
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.interop import jvm

pytestmark = pytest.mark.slow

FILES = {"segment_size_bytes": 1 << 18, "consumequeue_file_size_bytes": 6000, "batch_consumequeue_file_size_bytes": 46 * 20,
         "index_slots": 100, "index_entries_max": 1000, "message_size_max_bytes": 1 << 16}
THEIRS = jvm.settings({"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": 100,
                       "mapperFileSizeBatchConsumeQueue": 46 * 20, "maxIndexNum": 1000})
MOST = 7


def tag(i: int) -> str:
    return "fizz" if i % 3 == 0 else "java"


def expected(who: str, count: int, ends: dict[int, int]) -> dict[int, list[str]]:
    """By queue: offset, body, flag and property of each message. Moves `ends`."""
    found: dict[int, list[str]] = {0: [], 1: []}
    for i in range(count):
        for k in range(i % MOST + 1):
            found[i % 2].append(f"{ends[i % 2]} {who}-{i}-{k} {k} {k}")
            ends[i % 2] += 1
    return found


def put(store: MessageStore, who: str, count: int) -> None:
    for i in range(count):
        batch = [{"body": f"{who}-{i}-{k}".encode(), "flag": k, "properties": {"n": str(k), "TAGS": tag(i)}}
                 for k in range(i % MOST + 1)]
        store.put_inner_batch("B", batch, queue_id=i % 2, properties={"TAGS": tag(i), "KEYS": f"{who}{i}"})


def ours(store: MessageStore, queue_id: int) -> list[str]:
    found, at = [], max(store.min_offset("B", queue_id), 0)
    while result := store.get("B", queue_id, at, 32):
        found += [f"{m.queue_offset} {bytes(m.body).decode()} {m.flag} {m.properties['n']}" for m in result]
        at = result.next_offset
    return found


def theirs(j: jvm.JavaStore, path: Path, queue_id: int) -> list[str]:
    return j.ask("unwrap", path, "B", queue_id)["messages"].split(";")[:-1]


def modern(java: list[jvm.JavaStore]) -> list[jvm.JavaStore]:
    return [j for j in java if j.compat == "5.x"]


def unit_files(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted((path / "batchconsumequeue").rglob("0*")) if f.is_file()}


@pytest.mark.parametrize("crashed", [False, True])
def test_each_continues_where_the_other_stopped(crashed: bool, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    for j in modern(java):
        path, ends = tmp_path / j.version, {0: 0, 1: 0}
        all_: dict[int, list[str]] = {0: [], 1: []}
        j.ask("batch-topic", "B")
        for turn, (who, count) in enumerate((("one", 90), ("java", 80), ("two", 70))):
            if who == "java":
                j.ask("open", path, *THEIRS)
                assert {q: theirs(j, path, q) for q in (0, 1)} == all_, (j.version, turn)
                j.ask("batches", path, "B", who, count, MOST)
            else:
                with MessageStore.open(path, **FILES) as store:
                    if turn == 0:
                        store.topic_table.set_queue_type("B", "BatchCQ")
                    assert {q: ours(store, q) for q in (0, 1)} == all_, (j.version, turn)
                    put(store, who, count)
            more = expected(who, count, ends)
            all_ = {q: all_[q] + more[q] for q in (0, 1)}
            if who == "java":
                assert {q: theirs(j, path, q) for q in (0, 1)} == all_, j.version
                j.ask("close", path)
            if crashed:         # as if the queues' files had not reached the device
                for file in (path / "batchconsumequeue").rglob("0*0"):
                    if file.is_file():
                        file.unlink()
                (path / "checkpoint").unlink()
                (path / "abort").touch()
        j.ask("open", path, *THEIRS)
        assert {q: theirs(j, path, q) for q in (0, 1)} == all_, j.version
        j.ask("close", path)
        with MessageStore.open(path, **FILES) as store:
            assert {q: ours(store, q) for q in (0, 1)} == all_, j.version
            assert [bytes(m.body) for m in store.query_key("B", "java4").messages[0].unwrap()] == [
                f"java-4-{k}".encode() for k in range(5)]


def test_the_units_are_the_same_bytes(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    for j in modern(java):
        path = tmp_path / j.version
        j.ask("batch-topic", "B")
        j.ask("open", path, *THEIRS)
        j.ask("batches", path, "B", "java", 150, MOST)
        j.ask("close", path)
        written = unit_files(path)
        assert len(written) > 4 and all(len(data) == 46 * 20 for data in written.values())
        for file in written:            # this library makes them again from the log of the real store
            (path / file).unlink()
        (path / "checkpoint").unlink()
        (path / "abort").touch()
        (path / "config").mkdir(exist_ok=True)
        (path / "config" / "topics.json").write_text('{"topicConfigTable":{"B":{"topicName":"B","attributes":'
                                                     '{"queue.type":"BatchCQ"}}}}')
        MessageStore.open(path, **FILES).close()
        assert unit_files(path) == written, j.version


def test_bounds_gets_and_times_are_the_same(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    for j in modern(java):
        path = tmp_path / j.version
        j.ask("batch-topic", "B")
        with MessageStore.open(path, **FILES) as store:
            store.topic_table.set_queue_type("B", "BatchCQ")
            times = []
            for _ in range(60):
                r = store.put_inner_batch("B", [b"x" * 40] * 10)
                times.append(r.store_timestamp)
            store.flush()
            store._wait_dispatched(None)
            asked = [times[0] - 100, *times[::7], times[-1], times[-1] + 1000]
            ours_by_time = [store.offset_by_time("B", 0, t) for t in asked]
            gets = [(0, 1), (5, 1), (5, 9), (5, 10), (5, 11), (5, 32), (599, 3), (600, 3), (601, 3)]
            ours_found = [str(store.min_offset("B", 0)) + " " + str(store.max_offset("B", 0))]
            for at, most in gets:
                g = store.get("B", 0, at, most, _whole=True)
                ours_found.append(f"{g.status.name} {g.next_offset} {len(g)} {10 * len(g)}")
        j.ask("open", path, *THEIRS)
        assert j.ask("batch-times", path, "B", 0, *asked)["found"] == " ".join(map(str, ours_by_time)), j.version
        assert j.ask("batch-gets", path, "B", 0, *(f"{a},{m}" for a, m in gets))["found"].split(";") == ours_found, j.version
        j.ask("close", path)


def test_what_rocketmq_refuses_is_refused_here(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    """And one thing more: a plain message in a batch topic, which RocketMQ takes and no reader finds."""
    for j in modern(java):
        path = tmp_path / j.version
        j.ask("batch-topic", "B")
        j.ask("open", path, *THEIRS)
        said = {(topic, kind): j.ask("batch-status", path, topic, kind)["status"] for topic in ("B", "P")
                for kind in ("plain", "inner", "number")}
        j.ask("close", path)
        assert said == {("B", "plain"): "PUT_OK", ("B", "inner"): "PUT_OK", ("B", "number"): "MESSAGE_ILLEGAL",
                        ("P", "plain"): "PUT_OK", ("P", "inner"): "MESSAGE_ILLEGAL",
                        ("P", "number"): "MESSAGE_ILLEGAL"}, j.version

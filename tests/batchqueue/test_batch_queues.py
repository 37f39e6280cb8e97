"""Batch queues: puts of inner batches, reads, ends after clean closes, kills and damage, cleaning, verification, backups."""
import concurrent.futures
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors, verify
from rmq_store.cli.main import main

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "batch_consumequeue_file_size_bytes": 46 * 8,
         "index_slots": 100, "index_entries_max": 1000, "message_size_max_bytes": 1 << 14}
UNIT = struct.Struct(">qiqqqhii")


def make(path: Path, **more: object) -> MessageStore:
    store = MessageStore.open(path, **SMALL | more)
    if store.topic_table.get("B") is None:
        store.topic_table.set_queue_type("B", "BatchCQ")
    return store


def fill(store: MessageStore, count: int, begin: int = 0) -> None:
    """Batch i has 1 + i % 5 messages, whose bodies are i-k; a plain message of another topic between two."""
    for i in range(begin, begin + count):
        store.put_inner_batch("B", [{"body": b"%d-%d" % (i, k), "properties": {"KEYS": f"k{i}"}} for k in range(1 + i % 5)])
        store.put("P", b"plain")


def bodies(count: int) -> list[bytes]:
    return [b"%d-%d" % (i, k) for i in range(count) for k in range(1 + i % 5)]


def read(store: MessageStore) -> list[bytes]:
    found, at = [], max(store.min_offset("B", 0), 0)
    first = at
    while result := store.get("B", 0, at, 32):
        assert [m.queue_offset for m in result] == list(range(first + len(found), first + len(found) + len(result)))
        found += [bytes(m.body) for m in result]
        at = result.next_offset
    assert at == store.max_offset("B", 0)
    return found


def units(path: Path) -> list[tuple[int, ...]]:
    data = b"".join(f.read_bytes() for f in sorted((path / "batchconsumequeue" / "B" / "0").iterdir()))
    return [unit for unit in UNIT.iter_unpack(data) if unit[1] > 0]


def test_each_message_of_a_batch_has_an_offset(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 40)
        result = store.put_inner_batch("B", [b"x", {"body": b"y", "flag": 5, "properties": {"a": "b"}}], properties={"c": "d"})
        assert result.queue_offsets == [len(bodies(40)), len(bodies(40)) + 1] and len(set(result.offsets)) == 1
        store.wait_dispatched()
        got = read(store)
        assert got == [*bodies(40), b"x", b"y"]
        last = store.get("B", 0, result.queue_offsets[1])[0]
        assert (last.flag, last.properties, last.offset) == (5, {"a": "b"}, result.offsets[0])
        assert last.body_crc_ok and bytes(pickle.loads(pickle.dumps(last)).body) == b"y" and last.copy().flag == 5
        outer = store.message_at(result.offsets[0])
        assert (outer.sys_flag & 0xC0, outer.properties) == (0xC0, {
            "c": "d", "INNER_NUM": "2", "INNER_BASE": str(result.queue_offsets[0])})
        assert [bytes(m.body) for m in outer.unwrap()] == [b"x", b"y"]
        assert [bytes(m.body) for m in store.scan("B")] == got
        assert store.get("B", 0, 7, 3)[0].queue_offset == 7
    assert [u[4:] for u in units(tmp_path / "s")][:3] == [(0, 1, -1, 0), (1, 2, -1, 0), (3, 3, -1, 0)]


def test_tags_keys_and_sql(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        for n, tag in enumerate(("red", "blue", "red")):
            store.put_inner_batch("B", [
                {"body": b"%d" % k, "properties": {"TAGS": tag, "n": str(n * 3 + k)}} for k in range(3)])
        store.wait_dispatched()
        assert [m.queue_offset for m in store.get("B", 0, 0, tags="red")] == [0, 1, 2, 6, 7, 8]
        assert [m.queue_offset for m in store.get("B", 0, 0, sql="n BETWEEN 2 AND 4")] == [2, 3, 4]
        with pytest.raises(errors.MessageIllegal, match="different tags"):
            store.put_inner_batch("B", [{"body": b"", "properties": {"TAGS": t}} for t in "ab"])


def test_waiting_for_a_batch(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        assert not store.wait_for_message("B", 0, 0, 0)
        first = store.put_inner_batch("B", [b"a", b"b"])
        assert store.wait_for_message("B", 0, first.queue_offsets[1], 10)
        waiter: concurrent.futures.Future[list[bytes]]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiter = pool.submit(lambda: [bytes(m.body) for m in store.get("B", 0, 2, wait=10)])
            store.put_inner_batch("B", [b"c", b"d"])
            assert waiter.result(10) == [b"c", b"d"]
        with pytest.raises(errors.MessageIllegal):
            store.put("B", b"plain")            # the wait has not made it a queue of another kind


def test_messages_of_a_batch_are_counted_by_their_own_properties(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        for i in range(100):
            store.put_inner_batch("B", [{"body": b"x", "properties": {"n": str(k), "TAGS": f"t{i % 2}"}} for k in range(4)])
        store.wait_dispatched()
        store.offsets.commit("g", "B", 0, 5)
        for sql, begin, end, count in (("n >= 2", 0, 400, 200), ("n >= 2", 3, 400, 199), ("n >= 2", 1, 3, 1),
                                       ("n = 7", 0, 400, 0), ("n = 0", 0, 400, 100), ("n < 9", 399, 400, 1)):
            counted = store.estimate_message_count("B", 0, begin, end, sql=sql)
            assert (counted.messages, counted.exact) == (count, True), (sql, begin, end)
        assert [row.matching for row in store.lag("g", sql="n >= 2")] == [198]
        assert store.estimate_message_count("B", 0, 0, 400, tags="t1").messages == 200


def test_what_fits_no_queue_is_refused(tmp_path: Path) -> None:
    with make(tmp_path / "s", enable_lmq=True, enable_multi_dispatch=True) as store:
        store.put("P", b"x")
        for refused in (lambda: store.put("B", b"x"), lambda: store.put_many("B", [b"x"]),
                        lambda: store.put("B", b"x", queue_id=99),
                        lambda: store.put_async("B", b"x"), lambda: store.put("B", b"x", delay_level=1),
                        lambda: store.put("P", b"x", sys_flag=0x80), lambda: store.put_inner_batch("P", [b"x"]),
                        lambda: store.prepare("B", b"x", group="g"), lambda: store.put_inner_batch("B", []),
                        lambda: store.put_inner_batch("B", b"nonsense"),
                        lambda: store.put_inner_batch("B", [b"x"], sys_flag=4),
                        lambda: store.put_inner_batch("B", [b"x"], properties={"DELAY": "3"}),
                        lambda: store.put_inner_batch("B", [b"x" * (1 << 14)]),
                        lambda: store.put_inner_batch("B", [b""] * 32768)):
            with pytest.raises(errors.MessageIllegal):
                refused()
        for refused in (lambda: store.topic_table.set_queue_type("P", "BatchCQ"),
                        lambda: store.topic_table.set_queue_type("B", "SimpleCQ"),
                        lambda: store.topic_table.set_queue_type("C", "odd"),
                        lambda: store.topic_table.set("B", attributes={})):
            with pytest.raises(errors.ArgumentIllegal):
                refused()
        assert store.max_offset("B", 0) == 0


@pytest.mark.parametrize("lost", ["nothing", "units", "files", "checkpoint"])
def test_units_come_back_after_a_crash(lost: str, tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 60)
    before = units(tmp_path / "s")
    queue = tmp_path / "s" / "batchconsumequeue" / "B" / "0"
    files = sorted(queue.iterdir())
    (tmp_path / "s" / "abort").touch()
    if lost == "units":
        with files[-1].open("r+b") as file:
            file.write(bytes(46 * 3))
    elif lost == "files":
        shutil.rmtree(tmp_path / "s" / "batchconsumequeue")
    elif lost == "checkpoint":
        (tmp_path / "s" / "checkpoint").unlink()
        files[-1].unlink()
    with make(tmp_path / "s") as store:
        assert read(store) == bodies(60)
        fill(store, 5, 60)
        store.wait_dispatched()
        assert read(store) == bodies(65)
    assert units(tmp_path / "s")[:60] == before


def test_a_damaged_unit_is_made_again_at_a_clean_open(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 20)
    newest = max((tmp_path / "s" / "batchconsumequeue" / "B" / "0").iterdir())
    data = newest.read_bytes()
    newest.write_bytes(bytes(46) + data[46:])       # a hole before good units
    with make(tmp_path / "s") as store:
        assert read(store) == bodies(20)
        fill(store, 3, 20)
        store.wait_dispatched()
        assert read(store) == bodies(23)


@pytest.mark.untraced       # files are changed behind the trace's back
def test_a_log_that_lost_its_end_takes_its_units_along(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 30)
        store.wait_dispatched()
        at = store.get("B", 0, 50)[0].offset
    log = min((tmp_path / "s" / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(at)
        file.write(bytes((1 << 16) - at))
    kept = [u for u in units(tmp_path / "s") if u[0] < at]
    end = kept[-1][4] + kept[-1][5]
    with make(tmp_path / "s") as store:
        assert store.max_offset("B", 0) == end and read(store) == bodies(30)[:end]
        assert store.put_inner_batch("B", [b"new", b"er"]).queue_offsets == [end, end + 1]
    assert [u[:2] for u in units(tmp_path / "s")][:-1] == [u[:2] for u in kept]


VICTIM = """
import sys
from tests.batchqueue.test_batch_queues import fill, make
from pathlib import Path
store = make(Path(sys.argv[1]))
n = int(sys.argv[2])
while True:
    fill(store, 20, n)
    n += 20
    print(n, flush=True)
"""


def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    told = 0
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", VICTIM, str(tmp_path / "s"), str(told)], stdout=subprocess.PIPE,
                                 text=True)
        assert child.stdout is not None
        for _ in range(4):
            told = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.communicate()
        with make(tmp_path / "s") as store:
            got = read(store)
            assert got[:len(bodies(told))] == bodies(told)
            told = next(n for n in range(told, told + 10_000) if len(bodies(n)) >= len(got))
            assert got == bodies(told)
    assert not [f for f in verify(tmp_path / "s") if f.severity == "corrupt"]


def test_cleaning_deletes_units_with_their_records(tmp_path: Path) -> None:
    with make(tmp_path / "s", manifest_enabled=False) as store:
        for i in range(400):
            store.put_inner_batch("B", [b"%d" % i * 100] * 4)
        store.flush()
        store.wait_dispatched()
        before = len(os.listdir(tmp_path / "s" / "batchconsumequeue" / "B" / "0"))
        assert store.clean(0).log_files
        low = store.min_offset("B", 0)
        assert low > 0 and low % 4 == 0 and store.get("B", 0, 0).status.name == "OFFSET_TOO_SMALL"
        assert store.get("B", 0, low)[0].queue_offset == low
        assert len(os.listdir(tmp_path / "s" / "batchconsumequeue" / "B" / "0")) < before
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (low, 1600)


def test_the_kind_of_a_queue_never_changes_silently(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 3)
    topics = tmp_path / "s" / "config" / "topics.json"
    good = topics.read_text()
    for bak in topics.parent.glob("topics.json.bak"):
        bak.unlink()
    topics.write_text(good.replace("BatchCQ", "SimpleCQ"))
    for more in ({}, {"readonly": True}):
        with pytest.raises(errors.StoreRefusesToLoad, match="queue of the other kind"):
            MessageStore.open(tmp_path / "s", **more)
    topics.write_text(good)
    (tmp_path / "s" / "consumequeue" / "B" / "0").mkdir(parents=True)
    (tmp_path / "s" / "consumequeue" / "B" / "0" / f"{0:020d}").write_bytes(b"x")
    with pytest.raises(errors.StoreRefusesToLoad, match="queue of the other kind"):
        MessageStore.open(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "consumequeue" / "B")
    topics.write_text("{")
    with MessageStore.open(tmp_path / "s", readonly=True) as store:     # its directories say which topics they are of
        assert read(store) == bodies(3)


def test_verify_names_the_unit_that_is_wrong(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 12)
    assert not list(verify(tmp_path / "s"))
    first = min((tmp_path / "s" / "batchconsumequeue" / "B" / "0").iterdir())
    data = bytearray(first.read_bytes())
    data[46 * 2 + 7] ^= 4
    first.write_bytes(data)
    found = {f.kind for f in verify(tmp_path / "s")}
    assert "queue_wrong" in found and "queue_other" in found


def test_a_backup_has_batch_queues(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 30)
        store.backup(tmp_path / "b")
    made = next(p for p in (tmp_path / "b").iterdir() if (p / "commitlog").is_dir())
    assert units(made) == units(tmp_path / "s")
    shutil.copytree(made, tmp_path / "copy")
    with MessageStore.open(tmp_path / "copy") as store:
        assert read(store) == bodies(30)


def test_a_deleted_topic_begins_anew(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 30)
        store.wait_dispatched()
        assert store.delete_topics("B").removed == [("B", 0)]
        with pytest.raises(errors.MessageIllegal):
            store.put_inner_batch("B", [b"x"])
        store.topic_table.set_queue_type("B", "BatchCQ")
        assert store.put_inner_batch("B", [b"x", b"y"]).queue_offsets == [0, 1]
        store.wait_dispatched()
        assert read(store) == [b"x", b"y"]
    with make(tmp_path / "s") as store:
        assert read(store) == [b"x", b"y"]


def test_the_command_sets_the_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MessageStore.open(tmp_path / "s", **SMALL).close()
    assert main(["topics", "set", str(tmp_path / "s"), "-t", "B", "--queue-type", "BatchCQ"]) == 0
    assert "queue type BatchCQ" in capsys.readouterr().out
    with MessageStore.open(tmp_path / "s") as store:
        assert store.batch_topics == {"B"} and store.put_inner_batch("B", [b"x"]).queue_offsets == [0]

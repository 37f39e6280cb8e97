"""A reader in another store object follows batch queues: those it found, those that come, that are cleaned or begin anew."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.batchqueue.test_batch_queues import SMALL, bodies, fill, make, read
from tests.soon import until


def follow(path: Path) -> MessageStore:
    return MessageStore.open(path, readonly=True, follow=True)


def until_end(reader: MessageStore, topic: str, end: int) -> None:
    until(lambda: reader.wait_dispatched(10) and reader.max_offset(topic, 0) == end, looks=20_000)


@pytest.mark.parametrize("before", [0, 7, 40])
def test_every_message_arrives_once_and_in_order(tmp_path: Path, before: int) -> None:
    with make(tmp_path / "s") as store:
        fill(store, before)
        store.flush()
        with follow(tmp_path / "s") as reader:
            seen: list[bytes] = []
            for i in range(before, before + 30, 5):     # through several files of the queue
                fill(store, 5, i)
                while len(seen) < len(bodies(i + 5)):
                    result = reader.get("B", 0, len(seen), 32, wait=20)
                    assert [m.queue_offset for m in result] == list(range(len(seen), len(seen) + len(result)))
                    seen += [bytes(m.body) for m in result]
            assert seen == bodies(before + 30) == read(reader)
            until_end(reader, "P", before + 30)
            assert reader.batch_topics == {"B"} and reader.get("B", 0, 3, 1)[0].queue_offset == 3


def test_a_topic_that_gets_batch_queues_later(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("P", b"0")
        store.flush()
        with follow(tmp_path / "s") as reader:
            store.topic_table.set_queue_type("B", "BatchCQ")
            fill(store, 12)
            store.topic_table.set_queue_type("C", "BatchCQ")
            store.put_inner_batch("C", [b"a", b"b"], queue_id=3)
            until_end(reader, "B", len(bodies(12)))
            until(lambda: reader.wait_dispatched(10) and reader.max_offset("C", 3) == 2)
            assert read(reader) == bodies(12) and [bytes(m.body) for m in reader.get("C", 3, 1)] == [b"b"]
            store.delete_topics("B")
            store.topic_table.set_queue_type("B", "BatchCQ")
            store.put_inner_batch("B", [b"x", b"y"])
            until_end(reader, "B", 2)
            assert read(reader) == [b"x", b"y"]


def test_cleaning_takes_files_away_under_it(tmp_path: Path) -> None:
    with make(tmp_path / "s", manifest_enabled=False) as store:
        for i in range(200):
            store.put_inner_batch("B", [b"%d" % i * 100] * 4)
        store.flush()
        store.wait_dispatched()
        with follow(tmp_path / "s") as reader:
            assert reader.max_offset("B", 0) == 800 and reader.get("B", 0, 0)[0].queue_offset == 0
            for i in range(200, 400):
                store.put_inner_batch("B", [b"%d" % i * 100] * 4)
            store.flush()
            store.wait_dispatched()
            assert store.clean(0).log_files
            low = store.min_offset("B", 0)
            until(lambda: reader.min_offset("B", 0) == low, looks=20_000)
            until_end(reader, "B", 1600)
            assert reader.get("B", 0, low)[0].queue_offset == low
            assert reader.get("B", 0, 0).status.name == "OFFSET_TOO_SMALL"
            assert len(list(reader.scan("B"))) == 1600 - low


VICTIM = """
import sys
from pathlib import Path
from tests.batchqueue.test_batch_queues import fill, make
store = make(Path(sys.argv[1]))
fill(store, 20, int(sys.argv[2]))
store.flush()
store.wait_dispatched()
print("there", flush=True)
sys.stdin.read()
"""


def test_a_writer_that_is_killed_and_comes_again(tmp_path: Path) -> None:
    """Its recovery takes units away and makes them again, while somebody follows."""
    with make(tmp_path / "s") as store:
        fill(store, 20)
    with follow(tmp_path / "s") as reader:
        for n in (20, 40):
            child = subprocess.Popen([sys.executable, "-c", VICTIM, str(tmp_path / "s"), str(n)], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None and child.stdout.readline() == "there\n"
            until_end(reader, "B", len(bodies(n + 20)))
            child.kill()
            child.communicate()
            if n == 20:
                newest = max((tmp_path / "s" / "batchconsumequeue" / "B" / "0").iterdir())
                with newest.open("r+b") as file:            # what a power cut may leave of it
                    file.write(bytes(os.path.getsize(newest)))
                assert reader.get("B", 0, len(bodies(40)) - 1).status.name != "FOUND"
        until(lambda: [bytes(m.body) for m in reader.scan("B")] == bodies(60), looks=20_000)
        assert read(reader) == bodies(60)

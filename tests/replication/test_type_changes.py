"""A name gets queues of the other kind on the master. The slave's queues and its topics.json never part, and it ends with the
messages that its master has."""
import errno
import os
import threading
from pathlib import Path

from rmq_store import MessageStore
from tests.replication.pairs import SMALL, caught_up
from tests.replication.test_batch_topics import bodies, settled
from tests.replication.test_metadata import copied
from tests.soon import until

BATCHED = {"queue.type": "BatchCQ"}


def type_of(store: MessageStore, topic: str) -> object:
    return ((store.topic_table.get(topic) or {}).get("attributes") or {}).get("queue.type", "SimpleCQ")


def test_an_inner_batch_beside_an_answer_that_is_stale(tmp_path: Path) -> None:
    """The master was asked before its topic got batch queues; its first inner batch comes while the answer is written."""
    with settled(tmp_path) as (m, s):
        m.store.topic_table.set("B", readQueueNums=2)
        table, get = s.topic_table, s.topic_table.get
        makers: list[threading.Thread] = []

        def got(name: str) -> object:
            found = get(name)
            if name == "B" and not makers and threading.current_thread() is s._replication.metadata.thread:
                maker = threading.Thread(target=table.set_queue_type, args=("B", "BatchCQ"))
                maker.start()
                maker.join(0.5)             # it waits for the copy, or has made the entry
                makers.append(maker)
            return found

        table.get = got
        s._replication.metadata._wake.set()
        until(lambda: makers, 20_000)
        makers[0].join()
        assert type_of(s, "B") == "BatchCQ" and s.batch_topics == {"B"}
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        caught_up(s, m.store)
        assert bodies(s, "B") == [b"a", b"b"]
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as p:
        assert bodies(p, "B") == [b"a", b"b"]


def test_a_copy_that_takes_a_type_away_and_cannot_be_written(tmp_path: Path) -> None:
    with settled(tmp_path) as (m, s):
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        s._replication.metadata._wake.set()
        until(lambda: s.topic_table.get("B"), 20_000)
        m.store.topic_table.remove("B")             # and comes again with queues of the usual type
        m.store.topic_table.set("B", readQueueNums=2)
        save = s.topic_table._file.save
        fails: list[int] = []

        def full(*content: object) -> None:
            fails.append(1)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        s.topic_table._file.save = full
        s._replication.metadata._wake.set()
        until(lambda: fails, 20_000)
        until(lambda: s._replication.metadata._failed, 20_000)
        s.topic_table._file.save = save
        assert type_of(s, "B") == "BatchCQ" and s.batch_topics == {"B"}
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        caught_up(s, m.store)
        s._replication.metadata._wake.set()
        copied(s)
        assert bodies(s, "B") == [b"a", b"b"]
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as p:
        assert bodies(p, "B") == [b"a", b"b"]

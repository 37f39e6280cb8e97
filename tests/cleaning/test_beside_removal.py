"""Queues are removed and begin anew while cleaning moves their beginnings, and while they are read."""
import json
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_store import Message, MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.cleaning import _clean

ROUNDS = 60


def correct(store: MessageStore) -> None:
    _clean.correct_queues(store, 1)


def drop(store: MessageStore) -> None:
    _clean.drop_queue_files(store, 0, 1)


def clean(store: MessageStore) -> None:
    store.clean(hours=0)


def by_time(store: MessageStore) -> None:
    store.offset_by_time("T", 0, int(time.time() * 1000) - 5)


def get(store: MessageStore) -> None:
    assert {bytes(m.body) for m in store.get("T", 0, 0)} <= {b"x", b"first"}


def scan(store: MessageStore) -> None:
    assert {bytes(m.body) for m in store.scan("T", 0)} <= {b"x", b"first"}


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("those", [(correct, drop), (by_time,), (get, scan), (clean, by_time, get)],
                         ids=lambda those: those[0].__name__)
def test_others_at_work(tmp_path: Path, those: tuple[Callable[[MessageStore], None], ...], batches: bool) -> None:
    """No read of the files fails, and what comes later begins at offset 0 for every reader."""
    failed: list[str] = []
    over = threading.Event()
    with MessageStore.open(tmp_path, profile="test", consumequeue_file_size_bytes=400) as store:

        def work(part: Callable[[MessageStore], None]) -> None:
            try:
                while not over.is_set():
                    part(store)
            except BaseException:
                failed.append(traceback.format_exc())

        def put(bodies: list[bytes]) -> None:
            if batches:
                store.topic_table.set_queue_type("T", "BatchCQ")
                for body in bodies[:50]:
                    store.put_inner_batch("T", [body])
            else:
                store.put_many("T", bodies)
            store.wait_dispatched(30)

        threads = [threading.Thread(target=work, args=(part,)) for part in those]
        for thread in threads:
            thread.start()
        try:
            for _ in range(ROUNDS):
                put([b"x"] * 300)
                store.delete_topics("T")
                put([b"first"])
                assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 1)
                assert [bytes(m.body) for m in store.get("T", 0, 0)] == [b"first"]
                if failed:
                    break
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert failed == []


def test_several_removals_at_once(tmp_path: Path) -> None:
    """Each is written down, for whoever opens the store after a crash: its records are in the log still."""
    topics = [f"T{n}" for n in range(8)]
    with MessageStore.open(tmp_path, profile="test", consumequeue_file_size_bytes=400) as store:
        for topic in topics:
            store.put_many(topic, [b"x"] * 30)
        store.wait_dispatched(30)
        together = threading.Barrier(len(topics))
        failed: list[str] = []

        def remove(topic: str) -> None:
            try:
                together.wait(60)
                assert [gone[0] for gone in store.delete_topics(topic).removed] == [topic]
            except BaseException:
                failed.append(traceback.format_exc())

        threads = [threading.Thread(target=remove, args=(topic,)) for topic in topics]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        known = json.loads((tmp_path / "config" / "removedQueues.json").read_text())["removed"]
        assert sorted(known) == [f"{topic}@0" for topic in topics]
        assert store.topics() == []


@pytest.mark.parametrize("stand", [1, 2])
@pytest.mark.parametrize("batches", [False, True])
def test_an_answer_is_of_one_queue(tmp_path: Path, batches: bool, stand: int) -> None:
    """A read that stands between two blocks of entries while the queue begins anew has messages of one of the two queues."""
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path, profile="test", get_count_max_memory=1000, _io=io) as store:

        def put(body: bytes) -> None:
            if batches:
                store.topic_table.set_queue_type("T", "BatchCQ")
                for _ in range(300):
                    store.put_inner_batch("T", [body])
            else:
                store.put_many("T", [body] * 300)
            store.wait_dispatched(30)

        def read() -> None:
            reader.append(threading.get_native_id())
            begun.wait()
            found.extend(store.get("T", 0, 0, 300))

        put(b"old")
        reader: list[int] = []
        found: list[Message] = []
        begun = threading.Event()
        thread = threading.Thread(target=read)
        thread.start()
        while not reader:
            pass
        io.gate("pread", thread=reader[0])
        begun.set()
        for _ in range(stand):
            io.wait_standing()
            io.let(io.standing()[0].ticket)
        io.wait_standing()
        store.delete_topics("T")
        put(b"new")
        io.ungate()
        thread.join()
        assert {bytes(m.body) for m in found} in ({b"old"}, {b"new"})
        assert [m.queue_offset for m in found] == list(range(len(found)))
        found.clear()
        assert {bytes(m.body) for m in store.get("T", 0, 0, 300)} == {b"new"}

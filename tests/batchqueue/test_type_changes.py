"""A topic whose messages are deleted has no type: its name may get queues of the other kind, and a kill in between leaves a
store that opens."""
import errno
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore, errors, verify
from rmq_store.events import Event
from rmq_store.services.consumer.config_file import ConfigFile
from tests.batchqueue.test_batch_queues import SMALL


def bodies(store: MessageStore, topic: str = "B") -> list[bytes]:
    return [bytes(m.body) for queue in store.queues(topic) for m in store.scan(topic, queue)]


def put(store: MessageStore, kind: str, *texts: bytes, queue_id: int = 0) -> None:
    if kind == "batch":
        store.topic_table.set_queue_type("B", "BatchCQ")
        store.put_inner_batch("B", list(texts), queue_id=queue_id)
    else:
        for text in texts:
            store.put("B", text, queue_id=queue_id)
    store.wait_dispatched()


def killed(path: Path, work: Callable[[MessageStore], object], **options: Any) -> None:
    """Runs `work` on the store in a process that is then killed."""
    def run() -> None:
        store = MessageStore.open(path, **SMALL, **options)
        work(store)
        os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("later", [0, 5])
@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize(("first", "second"), [("batch", "batch"), ("batch", "plain"), ("plain", "batch"), ("plain", "plain")])
def test_the_name_of_a_deleted_topic(first: str, second: str, kill: bool, later: int, tmp_path: Path) -> None:
    """Is used again when the store was opened again, also where that dispatches the old messages once more."""
    def work(store: MessageStore) -> None:
        store.put("Other", b"x")
        put(store, first, b"old", b"er")
        put(store, first, b"old", queue_id=1)
        store.delete_topics("B")
        for _ in range(later):
            store.put("Other", b"x")
        store.wait_dispatched()

    if kill:
        killed(tmp_path / "s", work)
    else:
        with MessageStore.open(tmp_path / "s", **SMALL) as store:
            work(store)
    with MessageStore.open(tmp_path / "s", **SMALL):
        pass
    killed(tmp_path / "s", lambda store: put(store, second, b"new", b"er"))
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert bodies(store) == [b"new", b"er"] and (store.min_offset("B", 0), store.max_offset("B", 0)) == (0, 2)
        put(store, second, b"end", queue_id=1)
        assert bodies(store) == [b"new", b"er", b"end"]


@pytest.mark.parametrize("times", [1, 3])
def test_a_batch_topic_that_was_deleted_takes_plain_messages_at_once(times: int, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for n in range(times):
            put(store, "batch", b"a%d" % n, b"b")
            assert bodies(store) == [b"a%d" % n, b"b"]
            store.delete_topics("B")
        put(store, "plain", b"p", b"q")
        assert bodies(store) == [b"p", b"q"]
        with pytest.raises(errors.ArgumentIllegal, match="has, or had, queues of the type SimpleCQ"):
            store.topic_table.set_queue_type("B", "BatchCQ")
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert bodies(store) == [b"p", b"q"]


def test_a_put_that_knows_a_plain_queue_meets_no_batch_queue(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        put(store, "plain", b"p")
        store.delete_topics("B")
        with pytest.raises(errors.ArgumentIllegal, match="delete this one and open the store again"):
            store.topic_table.set_queue_type("B", "BatchCQ")
        put(store, "plain", b"q")
        assert bodies(store) == [b"q"]


def test_a_plain_queue_with_messages_keeps_its_topic_plain(tmp_path: Path) -> None:
    """Also where another queue of the topic has none."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        put(store, "plain", b"p")
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        with pytest.raises(errors.ArgumentIllegal, match="of the type SimpleCQ"):
            store.topic_table.set_queue_type("B", "BatchCQ")
        assert bodies(store) == [b"p"]


@pytest.mark.parametrize("kind", ["plain", "batch"])
@pytest.mark.parametrize("others", [0, 3])
def test_an_open_takes_deleted_topics_for_no_damage(others: int, kind: str, tmp_path: Path,
                                                    caplog: pytest.LogCaptureFixture) -> None:
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for _ in range(others):
            store.put("Other", b"x")
        put(store, kind, b"old", b"er")
        store.delete_topics("B", "Other")
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            with MessageStore.open(tmp_path / "s", **SMALL) as store:
                assert store.topics() == [] or bodies(store) == []
    assert not [r for r in caplog.records if getattr(r, "event", "") == Event.QUEUES_SPOILT.name]


def test_readers_beside_a_change_of_the_kind(tmp_path: Path) -> None:
    """They see what the queue has, or nothing; no error."""
    failures: list[BaseException] = []
    ended = threading.Event()

    def read(store: MessageStore) -> None:
        try:
            while not ended.is_set():
                found = store.get("B", 0, 0)
                assert all(bytes(m.body) in (b"a", b"b") for m in found.messages)
                store.offset_by_time("B", 0, 1)
                store.max_offset("B", 0)
        except BaseException as error:
            failures.append(error)

    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        put(store, "batch", b"a", b"b")
        threads = [threading.Thread(target=read, args=(store,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            store.delete_topics("B")
            put(store, "batch", b"a", b"b")
        ended.set()
        for thread in threads:
            thread.join()
        assert not failures and bodies(store) == [b"a", b"b"]


@pytest.mark.parametrize("how", ["remove", "delete_topics"])
def test_a_kill_behind_the_removal_of_an_entry(how: str, tmp_path: Path) -> None:
    """As soon as the topic takes plain messages, its entry is gone from the file."""
    def work(store: MessageStore) -> None:
        store.topic_table.set_queue_type("B", "BatchCQ")
        if how == "delete_topics":
            put(store, "batch", b"old")
        getattr(store if how == "delete_topics" else store.topic_table, how)("B")
        put(store, "plain", b"p")
        store.flush()

    killed(tmp_path / "s", work)
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert bodies(store) == [b"p"] and store.topic_table.get("B") is None


def test_no_message_while_an_entry_is_being_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the file says so, the topic takes neither plain messages nor inner batches; a full disk leaves it as before."""
    refused: list[str] = []
    save = ConfigFile.save

    def saved(self: ConfigFile, *content: Any) -> None:
        for call in (lambda: store.put("B", b"p"), lambda: store.put_inner_batch("B", [b"x"])):
            with pytest.raises(errors.MessageIllegal) as raised:
                call()
            refused.append(str(raised.value))
        if len(refused) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, *content)

    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        with monkeypatch.context() as patch:
            patch.setattr(ConfigFile, "save", saved)
            with pytest.raises(OSError, match="No space left"):
                store.topic_table.remove("B")
            assert store.batch_topics == {"B"} and store.topic_table.get("B")["attributes"] == {"queue.type": "BatchCQ"}
        put(store, "batch", b"a", b"b")
        assert bodies(store) == [b"a", b"b"]
        store.delete_topics("B")
        store.topic_table.set_queue_type("B", "BatchCQ")
        with monkeypatch.context() as patch:
            patch.setattr(ConfigFile, "save", saved)
            assert store.topic_table.remove("B")
        assert len(refused) == 4 and store.batch_topics == frozenset()
        put(store, "plain", b"p")
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert bodies(store) == [b"p"]


def test_an_inner_batch_waits_for_the_file(tmp_path: Path) -> None:
    """Under the put lock, too: a put that knows the topic from before comes between the steps of the next one."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        store._batch_topic("B", "close")
        store._batch_topic("B", "open")
        store.put_inner_batch("B", [b"a"])
        store.wait_dispatched()
        store.delete_topics("B")
        store._batch_topic("B", "open")             # as such a put knows it
        store._batch_topic("B", "take")
        before = store.max_log_offset
        with pytest.raises(errors.MessageIllegal, match="no batch queues"):
            store.put_inner_batch("B", [b"x"])
        assert store.max_log_offset == before
        store._batch_topic("B", "drop")


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("kinds", [("plain", "batch"), ("batch", "plain")])
def test_a_directory_that_a_kill_left_empty(tmp_path: Path, kinds: tuple[str, str], readonly: bool) -> None:
    """Between the last file of a removed queue and its directory: it is no queue of the other kind."""
    root = tmp_path / "s"
    for n, kind in enumerate(kinds):
        with MessageStore.open(root, **SMALL) as store:
            if kind == "batch":
                store.topic_table.set_queue_type("B", "BatchCQ")
                store.put_inner_batch("B", [b"a", b"b"])
            else:
                store.put("B", b"a")
            assert store.wait_dispatched(30)
            if n == 0:
                store.delete_topics("B")
        if n == 0:
            for queue_id in range(2):
                (root / {"plain": "consumequeue", "batch": "batchconsumequeue"}[kind] / "B" / str(queue_id)).mkdir(parents=True)
    for _ in range(2):
        with MessageStore.open(root, readonly=readonly, **SMALL) as store:
            assert [bytes(m.body) for m in store.scan("B", 0)] == ([b"a", b"b"] if kinds[1] == "batch" else [b"a"])
    assert [f for f in verify(root) if f.severity != "note"] == []

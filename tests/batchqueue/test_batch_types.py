"""Which topics have batch queues: the type and the queues of a topic never part, and many topics cost little."""
import errno
import gc
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.services.consumer.config_file import ConfigFile
from tests.batchqueue.test_batch_queues import SMALL, bodies, fill, make, read, units


def test_an_entry_that_messages_need_is_not_removed(tmp_path: Path) -> None:
    with make(tmp_path / "s") as store:
        fill(store, 5)                  # some of them may wait for dispatch
        with pytest.raises(errors.ArgumentIllegal, match="use delete_topics"):
            store.topic_table.remove("B")
        assert store.batch_topics == {"B"}
        fill(store, 3, 5)
        store.topic_table.set_queue_type("C", "BatchCQ")
        assert store.topic_table.remove("C") and store.batch_topics == {"B"}
        with pytest.raises(errors.MessageIllegal, match="no batch queues"):
            store.put_inner_batch("C", [b"x"])
        store.put("C", b"plain")
    with make(tmp_path / "s") as store:
        assert read(store) == bodies(8) and store.max_offset("C", 0) == 1
        with pytest.raises(errors.ArgumentIllegal):
            store.topic_table.remove("B")


def test_a_put_beside_the_removal_is_refused_or_keeps_the_entry(tmp_path: Path) -> None:
    """A put may have looked the topic up before."""
    with make(tmp_path / "s") as store:
        store._batch_topic("B", "drop")
        store._batch_topic("B", "open")         # as such a put knows it
        before = store.max_log_offset
        with pytest.raises(errors.MessageIllegal, match="no batch queues"):
            store.put_inner_batch("B", [b"x"])
        assert store.max_log_offset == before


@pytest.mark.parametrize("call", ["set_queue_type", "set", "write_entries"])
def test_a_full_disk_leaves_the_type_as_it_was(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    attributes: Any = {"attributes": {"queue.type": "BatchCQ"}}
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        table = store.topic_table
        calls = {"set_queue_type": lambda: table.set_queue_type("B", "BatchCQ"), "set": lambda: table.set("B", **attributes),
                 "write_entries": lambda: table.write_entries({"B": attributes})}
        with monkeypatch.context() as patch:
            patch.setattr(ConfigFile, "save", full)
            with pytest.raises(OSError):
                calls[call]()
        assert table.get("B") is None and store.batch_topics == frozenset()
        with pytest.raises(errors.MessageIllegal):
            store.put_inner_batch("B", [b"x"])
        store.put("B", b"plain")                # its queues are as other topics'
        store.wait_dispatched()
        with pytest.raises(errors.ArgumentIllegal):
            calls[call]()
        assert bytes(store.get("B", 0, 0)[0].body) == b"plain"
        table.set_queue_type("C", "BatchCQ")
        store.put_inner_batch("C", [b"x"])
    with MessageStore.open(tmp_path / "s") as store:
        assert store.batch_topics == {"C"} and (store.max_offset("B", 0), store.max_offset("C", 0)) == (1, 1)


@pytest.mark.untraced       # files are changed behind the trace's back
def test_a_queue_all_of_whose_units_are_cut_off_keeps_its_offset(tmp_path: Path) -> None:
    one: dict[str, Any] = {"batch_consumequeue_file_size_bytes": 46, "manifest_enabled": False}     # a unit in each file
    with make(tmp_path / "s", **one) as store:
        for i in range(100):
            for k in range(7):
                store.put("P", b"%d" % k * 400)
            store.put_inner_batch("B", [b"%d" % i * 100] * 4)
        store.flush()
        store.wait_dispatched()
        store.clean(0, files_max=1)
        low, begin = store.min_offset("B", 0), store.min_log_offset
        at = store.get("B", 0, low)[0].offset
        assert low > 0 and begin < at < begin + (1 << 16)       # a plain record is before it
    logs = sorted((tmp_path / "s" / "commitlog").iterdir())
    assert int(logs[0].name) == begin
    for log in logs[1:]:
        log.unlink()
    with logs[0].open("r+b") as file:
        file.seek(at - begin)
        file.write(bytes((1 << 16) - (at - begin)))
    (tmp_path / "s" / "abort").touch()
    (tmp_path / "s" / "checkpoint").unlink()
    with make(tmp_path / "s", commitlog_loss_accepted=True, **one) as store:
        assert store.max_offset("B", 0) == low
        assert store.put_inner_batch("B", [b"new", b"er"]).queue_offsets == [low, low + 1]
        store.wait_dispatched()
        assert [bytes(m.body) for m in store.get("B", 0, low)] == [b"new", b"er"]
    with make(tmp_path / "s", **one) as store:
        assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (low, low + 2)
    assert [u[4] for u in units(tmp_path / "s")] == [low]


def memory() -> int:
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def test_many_batch_topics_cost_their_names(tmp_path: Path) -> None:
    table = QueueTableOwner(str(tmp_path / "consumequeue"), tmp_dir=str(tmp_path), file_size=2000)
    names = [b"topic-%05d" % n for n in range(6000)]
    before = memory()
    for name in names:                  # one by one, as topic_table makes them
        assert table.batched(str(tmp_path / "batch"), 460, [name])
    assert memory() - before < 4 << 20
    assert all(table.is_batched(name) for name in names)
    assert not table.is_batched(b"topic-06000") and not table.is_batched(b"topic-0000")


def test_the_directories_of_both_kinds_are_synced(tmp_path: Path) -> None:
    """The first queues of a store: one directory has batch queues, another one the others."""
    probe = ProbeIo()
    with make(tmp_path / "s") as store:
        pass
    shutil.rmtree(tmp_path / "s" / "consumequeue", ignore_errors=True)
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as store:
        store.put("P", b"x")
        store.wait_dispatched()
        store.put_inner_batch("B", [b"x"])
        store.wait_dispatched()
        begin = len(probe.trace())
    synced = {c.path for c in probe.trace(begin) if c.kind == "sync_dir"}
    assert {str(tmp_path / "s" / name) for name in ("consumequeue", "batchconsumequeue")} <= synced


@pytest.mark.parametrize("name", ["%LMQ%l", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
                                  "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "%RETRY%g", "%DLQ%g"])
def test_light_queues_and_the_stores_own_topics_stay_plain(name: str, tmp_path: Path) -> None:
    batched: Any = {"attributes": {"queue.type": "BatchCQ"}}
    compacted: Any = {"attributes": {"cleanup.policy": "COMPACTION"}}
    with MessageStore.open(tmp_path / "s", enable_lmq=True, enable_multi_dispatch=True, **SMALL) as store:
        table = store.topic_table
        for refused in (lambda: table.set_queue_type(name, "BatchCQ"), lambda: table.set_cleanup_policy(name, "COMPACTION"),
                        lambda: table.set(name, **batched), lambda: table.set(name, **compacted)):
            with pytest.raises(errors.ArgumentIllegal, match="is a light queue" if "LMQ" in name else "of the store itself"):
                refused()
        assert table.get(name) is None and store.batch_topics == frozenset()
        table.set_queue_type(name, "SimpleCQ")
        table.set_cleanup_policy(name, "DELETE")
        store.put("dev", b"1", light_queues=["l"])
        store.prepare("dev", b"2", group="g").rollback()
        store.put("dev", b"3", delay=0.001)
        store.wait_dispatched()
        assert bytes(store.get("%LMQ%l", 0, 0)[0].body) == b"1"


def test_what_a_broker_wrote_of_a_light_queue_loses_no_message(tmp_path: Path) -> None:
    light: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True}
    with MessageStore.open(tmp_path / "s", **light, **SMALL) as store:
        store.topic_table.write_entries({
            "%LMQ%b": {"attributes": {"queue.type": "BatchCQ"}}, "%LMQ%c": {"attributes": {"cleanup.policy": "COMPACTION"}},
            "RMQ_SYS_TRANS_OP_HALF_TOPIC": {"attributes": {"cleanup.policy": "COMPACTION"}}})
    with MessageStore.open(tmp_path / "s", **light, **SMALL) as store:
        assert store.topic_table.compacted() == frozenset()
        with pytest.raises(errors.MessageIllegal, match="%LMQ%b has batch queues"):
            store.put("dev", b"1", light_queues=["b"])
        store.put("dev", b"2", keys="k", light_queues=["c"])
        store.prepare("dev", b"3", group="g").rollback()
        store.wait_dispatched()
        assert store.max_offset("dev", 0) == 1 and bytes(store.get("%LMQ%c", 0, 0)[0].body) == b"2"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named(code: int, tmp_path: Path) -> None:
    io = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as store:
        for call in (lambda: store.topic_table.set_queue_type("B", "BatchCQ"),
                     lambda: store.topic_table.set_cleanup_policy("C", "COMPACTION")):
            io.fail("pwrite", 1, code, path="topics.json")
            with pytest.raises(errors.DiskFull, match=r"topics\.json.*make the call again") as raised:
                call()
            assert raised.value.errno == code
            io.clear()
            call()

"""Records whose topic cannot be the name of a directory: it is too long, or would lead elsewhere."""
import re
import struct
from pathlib import Path

import pytest

from rmq_store import MessageStore, promote, verify
from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.codec._codec import encode_record
from tests.replication.pairs import SMALL, Listening
from tests.soon import until

LONG = "x" * 256
NAMES = ["x" * 255, "x" * 254 + "%", LONG, "x" * 4096, "x" * 20000, "\u00fc" * 128, "%LMQ%" + "x" * 251,
         "%RETRY%" + "x" * 249, "a/b", "a\0b"]
LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


def fits(topic: str) -> bool:
    return re.fullmatch("[%A-Za-z0-9]{1,255}", topic) is not None


def log_with(*topics: str, at: int = 0, properties: dict[str, str] | None = None, sys_flag: int = 0) -> bytes:
    """One record of each topic, with keys, and one of T behind them."""
    log = b""
    for topic in (*topics, "T"):
        log += encode_record(topic, b"body", physical_offset=at + len(log), keys="k", sys_flag=sys_flag,
                             properties=properties if topic != "T" else None, store_timestamp=1_700_000_000_000,
                             born_timestamp=1_700_000_000_000)
    return log


def left_by_a_crash(root: Path, log: bytes, **options: object) -> None:
    """A store whose log has these records, which nobody has dispatched."""
    MessageStore.open(root, **SMALL, **options).close()
    (root / "abort").touch()
    (root / "commitlog").mkdir(exist_ok=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(log.ljust(SMALL["segment_size_bytes"], b"\0"))


def said(caplog: pytest.LogCaptureFixture) -> list[dict]:
    return [record.fields for record in caplog.records if getattr(record, "event", "") == "RECORDS_NAMELESS"]


def works(s: MessageStore, topic: str) -> None:
    assert s.wait_dispatched(30)
    assert [m.topic for m in s.scan()][:2] == [topic, "T"] and next(bytes(m.body) for m in s.scan("T", 0)) == b"body"
    assert s.topics() == (sorted(["T", topic]) if fits(topic) else ["T"])
    assert s.stats()["unreadable_records"] in (0, not fits(topic)) and s.stats()["errno"] == 0


@pytest.mark.untraced       # the log is written behind the trace's back
@pytest.mark.parametrize("topic", NAMES, ids=lambda topic: f"{topic[:8]!a}-{len(topic)}")
def test_an_open_recovers(tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    left_by_a_crash(tmp_path / "s", log_with(topic))
    for n in range(2):
        with MessageStore.open(tmp_path / "s", **SMALL) as s:
            works(s, topic)
            s.put("T", b"%d" % n)
    assert said(caplog) == ([] if fits(topic) else [{"path": str(tmp_path / "s"), "offset": 0}])
    assert [f.kind for f in verify(tmp_path / "s") if f.severity == "corrupt"] == ["record_header"] * (not fits(topic))
    assert sorted(p.name for p in (tmp_path / "s" / "consumequeue").iterdir()) == sorted({"T", topic} if fits(topic) else {"T"})


@pytest.mark.untraced       # the log is a socket's
@pytest.mark.parametrize("topic", NAMES, ids=lambda topic: f"{topic[:8]!a}-{len(topic)}")
def test_a_slave_gets_them_and_is_promoted(tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    log = log_with(topic, topic)
    with Listening() as peer, MessageStore.open(tmp_path / "s", **SMALL, role="slave", ha_master=peer.address) as s, \
            peer.accept() as master:
        master.read_report()
        master.frame(0, log)
        until(lambda: s.max_log_offset == len(log), 20_000)
        works_twice(s, topic)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SMALL) as reader:
            until(lambda: reader.max_offset("T", 0) == 1, 20_000)
            assert reader.topics() == s.topics() and reader.stats()["errno"] == 0
    assert said(caplog) == ([] if fits(topic) else [{"path": str(tmp_path / "s"), "offset": 0}])       # once, not for each
    promote(tmp_path / "s", force=True, **SMALL)
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.put("T", b"next").queue_offset == 1


def works_twice(s: MessageStore, topic: str) -> None:
    assert s.wait_dispatched(30) and s.stats()["errno"] == 0
    assert [m.topic for m in s.scan()] == [topic, topic, "T"] and s.max_offset("T", 0) == 1
    assert s.topics() == (sorted(["T", topic]) if fits(topic) else ["T"])


@pytest.mark.untraced
@pytest.mark.parametrize("size", [255, 256, 4000])
def test_a_light_queue(tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture) -> None:
    """The record has its own queue, and the light queues whose names fit."""
    name = "%LMQ%" + "x" * (size - 5)
    left_by_a_crash(tmp_path / "s", log_with("U", properties={"INNER_MULTI_DISPATCH": f"{name},%LMQ%a",
                                                              "INNER_MULTI_QUEUE_OFFSET": "0,0"}), **LIGHT)
    for _ in range(2):
        with MessageStore.open(tmp_path / "s", **SMALL, **LIGHT) as s:
            assert s.wait_dispatched(30) and s.stats()["errno"] == 0
            assert s.max_offset("%LMQ%a", 0) == s.max_offset("U", 0) == s.max_offset("T", 0) == 1
            assert (name in s.topics()) == (size == 255)
    assert len(said(caplog)) == (size != 255)


@pytest.mark.untraced
@pytest.mark.parametrize("topic", [LONG, "a/b"])
def test_half_messages_and_keys(tmp_path: Path, topic: str) -> None:
    """A prepared record has no queue, and the index has its key."""
    left_by_a_crash(tmp_path / "s", log_with(topic, sys_flag=4))
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.wait_dispatched(30) and s.topics() == [] and s.stats()["errno"] == 0
        assert len(s.query_key("T", "k")) == 1 and len(s.query_key(topic, "k")) == 1


@pytest.mark.untraced
@pytest.mark.parametrize("topic", [LONG, "../../x"])
def test_somebody_waits_for_such_a_topic(tmp_path: Path, topic: str) -> None:
    """Who waits has a queue in memory. It never becomes a directory."""
    with Listening() as peer, MessageStore.open(tmp_path / "s", **SMALL, role="slave", ha_master=peer.address) as s:
        hub = Arrivals(s)
        hub.watch(topic, 0)
        with peer.accept() as master:
            master.read_report()
            log = log_with(topic)
            master.frame(0, log)
            until(lambda: s.max_log_offset == len(log), 20_000)
            assert s.wait_dispatched(30) and s.stats()["errno"] == 0 and s.max_offset("T", 0) == 1
        hub.close()
    assert [p.name for p in (tmp_path / "s" / "consumequeue").iterdir()] == ["T"] and not (tmp_path / "x").exists()


def test_the_length_of_a_record_of_version_2() -> None:
    """What these tests rest on: the topic's length has two bytes."""
    record = encode_record(LONG, b"")
    assert struct.unpack_from(">h", record, 88) == (256,)

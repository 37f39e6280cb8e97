"""What a slave copies of its master beside the log, and that a promoted slave continues with it."""
import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_store import Broker, MessageStore, promote
from rmq_store.config.upstream_json import parse_json
from rmq_store.errors import StoreIsSlave
from rmq_store.events import Event
from rmq_store.network.front import NativeFront
from rmq_store.remoting.frame import Frame
from rmq_store.services.timer.service import load_check
from rmq_store.upkeep.promoting.delays import delivered
from tests.broker.peer import Peer
from tests.replication.pairs import SMALL, caught_up, joined
from tests.soon import until


def written(path: Path) -> dict:
    """The delay offsets that are in their file."""
    file = path / "config" / "delayOffset.json"
    return parse_json(file.read_text())["offsetTable"] if file.exists() else {}


FAST = {"ha_metadata_interval_ms": 100, "ha_housekeeping_interval_ms": 20_000}


def leader(path: Path, **more: object) -> Broker:
    return Broker.open(path, **{"role": "master", "ha_listen": "127.0.0.1:0", **SMALL, "timer_wheel_enable": True,
                                "timer_precision_ms": 100, **more})


def follower(path: Path, of: Broker, **more: object) -> MessageStore:
    return MessageStore.open(path, **{**SMALL, **FAST, "timer_wheel_enable": True, "role": "slave",
                                      "ha_master": of.store.replication().address, "ha_master_broker": of.address, **more})


def copied(store: MessageStore) -> None:
    """A whole copy that began after this call."""
    until(lambda: store._replication.metadata is not None, 20_000)
    metadata = store._replication.metadata
    for _ in range(2):
        before = metadata.copied_ms
        metadata._wake.set()
        until(lambda before=before: metadata.copied_ms is not None and metadata.copied_ms != before, 20_000)


def config(path: Path, name: str) -> dict:
    return parse_json((path / "config" / name).read_text())


def test_topics_groups_and_offsets_are_copied(tmp_path: Path) -> None:
    with leader(tmp_path / "m") as m, Peer(m.address) as peer:
        m.store.topic_table.set("T", readQueueNums=3, writeQueueNums=3, attributes={"message.type": "NORMAL"})
        m.store.group_table.set("G", retryMaxTimes=7)
        with follower(tmp_path / "s", m) as s:
            joined(m.store)
            peer.put("T", queue=1)
            peer.ask(15, consumerGroup="G", topic="T", queueId=1, commitOffset=1)
            caught_up(s, m.store)
            copied(s)
            assert s.replication().broker == m.address
            m.store.topic_table.flush()
            assert s.topic_table.entries() == m.store.topic_table.entries()
            assert s.topic_table.version() == m.store.topic_table.version() != {}
            assert s.group_table.get("G")["retryMaxTimes"] == 7
            assert s.offsets.table()["T", "G"] == {1: 1}
            before = (tmp_path / "s/config/topics.json").stat()
            copied(s)
            # The same version: not written again.
            assert (tmp_path / "s/config/topics.json").stat().st_ino == before.st_ino
            m.store.topic_table.remove("T")
            m.store.topic_table.set("U", readQueueNums=1)
            copied(s)
            assert s.topic_table.get("T") is None and s.topic_table.get("U")["readQueueNums"] == 1
            assert config(tmp_path / "s", "topics.json") == config(tmp_path / "m", "topics.json")
    assert config(tmp_path / "s", "consumerOffset.json")["offsetTable"] == {"T@G": {"1": 1}}


def test_another_broker_at_the_port_two_below(tmp_path: Path) -> None:
    """A Java slave asks there for topics, and takes those of the other one."""
    for attempt in range(20):
        with leader(tmp_path / f"other{attempt}") as other, suppress(OSError), \
                leader(tmp_path / f"m{attempt}", listen=f"127.0.0.1:{int(other.address.rpartition(':')[2]) + 2}") as m:
            assert m.fast_address is None
            other.store.topic_table.set("Other")
            m.store.topic_table.set("T")
            with follower(tmp_path / "s", m) as s:
                copied(s)
                assert s.topic_table.names() == m.store.topic_table.names()
            return
    pytest.fail("no port whose neighbour is free")


def test_a_name_server_is_no_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It answers every such request with "not supported", and the slave took that for a master that has nothing."""
    with leader(tmp_path / "m") as m, MessageStore.open(tmp_path / "s", role="slave", ha_master=m.store.replication().address,
                                                        ha_master_broker=m.namesrv_address, **SMALL) as s:
        until(lambda: any(record.event == Event.METADATA_FAILED.name for record in caplog.records), 20_000)
        assert "it does not know request 21, which every broker knows: give HOST:PORT of the master's broker" in caplog.text
        assert s.replication().copied_ms is None


def test_a_promoted_slave_delivers_no_delayed_message_again(tmp_path: Path) -> None:
    """Nor a timer message: what the master had delivered is delivered, what waited there is delivered here."""
    with leader(tmp_path / "m", delay_levels="1s 1h", delay_offset_flush_interval_ms=1000) as m, \
            follower(tmp_path / "s", m, delay_levels="1s 1h") as s:
        joined(m.store)
        now = int(time.time() * 1000)
        for n in range(5):
            m.store.put("D", b"delayed %d" % n, delay_level=1)
            m.store.put("D", b"timed %d" % n, deliver_at=now + 50)
        m.store.put("D", b"later", delay_level=2)
        m.store.put("D", b"soon", deliver_at=now + 3000)
        until(lambda: m.store.max_offset("D", 0) == 10, 20_000)
        until(lambda: m.store._timer is not None and m.store._timer.wheel.counted()[0] > now + 50, 20_000)
        # Its control thread writes both, and nobody beside it.
        until(lambda: load_check(m.store.path)[0] > now + 50, 20_000)
        until(lambda: written(tmp_path / "m").get("1") == 5, 20_000)
        caught_up(s, m.store)
        copied(s)
        assert s.max_offset("D", 0) == 10
    assert config(tmp_path / "s", "delayOffset.json")["offsetTable"]["1"] == 5
    done = promote(tmp_path / "s", **SMALL, delay_levels="1s 1h")
    assert done.role == "master"
    with MessageStore.open(tmp_path / "s", **{**SMALL, "timer_wheel_enable": True, "timer_precision_ms": 100},
                           delay_levels="1s 1h") as p:
        p.put("D", b"new delayed", delay_level=1)
        p.put("D", b"new timed", deliver_at=int(time.time() * 1000) + 50)
        until(lambda: p.max_offset("D", 0) >= 13, 20_000)
        bodies = [bytes(message.body) for message in p.scan("D")]
        assert len(bodies) == len(set(bodies)) == 13
        assert {b"new delayed", b"new timed", b"soon"} <= set(bodies)


@pytest.mark.slow
@pytest.mark.parametrize("copies", [True, False])
def test_what_was_delivered_since_the_last_copy(tmp_path: Path, copies: bool) -> None:
    """The log tells it: of a slave that copies now and then, and of one that copies nothing. Equal messages are told apart by
    their number."""
    options: dict = {"delay_levels": "1s 2s 1h", "timer_wheel_enable": True, "timer_precision_ms": 100}
    with leader(tmp_path / "m", **{**options, "delay": "deliver"}) as m:
        more = {} if copies else {"ha_master_broker": None}
        with follower(tmp_path / "s", m, **{**options, "ha_metadata_interval_ms": 3_600_000, **more}) as s:
            joined(m.store)
            for n in range(6):
                same = {"born_timestamp": 1_700_000_000_000, "wait": False}
                m.store.put("D", b"equal", delay_level=1, **same)
                m.store.put("D", b"%d" % n, delay_level=1 + n % 3, **same)
            m.store.put("D", b"timed", deliver_at=int(time.time() * 1000) + 200)
            until(lambda: m.store.max_offset("D", 0) >= 4, 20_000)
            if copies:
                m.store._delay.write()
                copied(s)
            until(lambda: m.store.max_offset("D", 0) == 11, 20_000)
            caught_up(s, m.store)
    promote(tmp_path / "s", **SMALL, delay_levels=options["delay_levels"])
    assert config(tmp_path / "s", "delayOffset.json")["offsetTable"] == {"1": 8, "2": 2, "3": 0}
    with MessageStore.open(tmp_path / "s", **{**SMALL, **options}) as p:
        p.put("D", b"new", delay_level=1)
        p.put("D", b"new timed", deliver_at=int(time.time() * 1000) + 1200)
        until(lambda: p.max_offset("D", 0) >= 13, 20_000)
        bodies = sorted(bytes(m.body) for m in p.scan("D"))
        assert bodies == sorted([*[b"equal"] * 6, b"0", b"1", b"3", b"4", b"timed", b"new", b"new timed"])


def test_what_the_log_tells_of_delay_levels(tmp_path: Path) -> None:
    """Whatever delayOffset.json says, and of equal messages too."""
    options = {**SMALL, "delay_levels": "1s 2s 1h"}
    with MessageStore.open(tmp_path, **options) as m:
        for n in range(4):
            m.put("D", b"equal", delay_level=1, born_timestamp=1_700_000_000_000)
            m.put("D", b"%d" % n, delay_level=1 + n % 3)
        until(lambda: m.max_offset("D", 0) >= 6, 20_000)        # none of level 2 has to be there yet
    with MessageStore.open(tmp_path, readonly=True, **options) as m:
        second = m.max_offset("D", 0) - 6
        for known in ({}, {1: 0}, {1: 3, 2: 0}, {1: 6, 2: 0, 3: 0}):
            assert delivered(m, known) == {1: 6, 2: second, 3: 0}
        assert delivered(m, {1: 99, 3: 1}) == {1: 6, 2: second, 3: 1}


def test_a_topic_with_batch_queues(tmp_path: Path) -> None:
    """Its entry is here before its first message: else the slave had queues of the other type, and could not be opened."""
    with leader(tmp_path / "m") as m:
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        with follower(tmp_path / "s", m) as s:
            joined(m.store)
            m.store.put_inner_batch("B", [b"a", b"b"])
            caught_up(s, m.store)
            assert [bytes(x.body) for x in s.scan("B", 0)] == [b"a", b"b"]
            m.store.delete_topics("B")
            m.store.topic_table.set("C", readQueueNums=2)
            copied(s)
            assert s.topic_table.get("C") is not None
            assert s.topic_table.get("B") is not None           # it has messages of it here
    promote(tmp_path / "s", **SMALL)
    with MessageStore.open(tmp_path / "s", **SMALL) as p:
        assert p.put_inner_batch("B", [b"c"]).queue_offsets == [2]


def test_a_topic_whose_queues_differ(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A slave that had messages of it before it knew its type."""
    with leader(tmp_path / "m") as m:
        with follower(tmp_path / "s", m, ha_master_broker=None) as s:
            joined(m.store)
            m.store.put("B", b"x")
            caught_up(s, m.store)
        table = {"dataVersion": VERSION, "topicConfigTable": {"B": {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}}}
        with Odd({**GOOD, 21: (0, json.dumps(table).encode())}) as odd, follower(tmp_path / "s", m,
                                                                                 ha_master_broker=odd.address) as s:
            copied(s)
            assert s.topic_table.get("B") == {"topicName": "B", "attributes": {}}
            assert any(record.event == Event.TOPIC_KEPT.name for record in caplog.records)
    promote(tmp_path / "s", **SMALL)
    with MessageStore.open(tmp_path / "s", **SMALL) as p:
        assert [bytes(x.body) for x in p.scan("B", 0)] == [b"x"]


def test_opened_as_a_master_by_mistake(tmp_path: Path) -> None:
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m) as s:
        joined(m.store)
        m.store.put("T", b"x")
        caught_up(s, m.store)
    before = {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file() and p.name != "lock"}
    with pytest.raises(StoreIsSlave, match="rmqstore promote"):
        MessageStore.open(tmp_path / "s", **SMALL)
    assert {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file() and p.name != "lock"} == before
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as s:
        assert s.max_offset("T", 0) == 1


def test_the_command_copies_too(tmp_path: Path) -> None:
    """`rmqstore follow --broker`."""
    options = [f"{name}={value}" for name, value in {**SMALL, **FAST}.items()]
    with leader(tmp_path / "m") as m:
        m.store.topic_table.set("T", readQueueNums=3)
        command = [sys.executable, "-m", "rmq_store", "follow", m.store.replication().address, str(tmp_path / "s"), "--broker",
                   m.address, *(word for option in options for word in ("-o", option))]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            until((tmp_path / "s/config/topics.json").exists, 30_000)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert config(tmp_path / "s", "topics.json")["topicConfigTable"]["T"]["readQueueNums"] == 3


class Odd:
    """A master's broker that answers what a test says, by code."""

    def __init__(self, answers: dict[int, tuple[int, bytes]]) -> None:
        self.answers, self.asked = answers, []
        self.front = NativeFront(("127.0.0.1", 0), self.answer, lambda connection: None)
        self.address = self.front.address

    def __enter__(self) -> "Odd":
        self.front.serve()
        return self

    def __exit__(self, *exc: object) -> None:
        self.front.stop()

    def answer(self, connection: object, frame: Frame) -> Frame:
        self.asked.append(frame.code)
        code, body = self.answers.get(frame.code, (3, b""))
        return frame.answer(code, "", {}, body)


def test_offsets_wait_for_the_log(tmp_path: Path) -> None:
    """A delayed message that the master has delivered and the slave has not got yet would be delivered by nobody; a group would
    pass over messages. Topics do not wait."""
    with leader(tmp_path / "m") as m:
        m.store.put("T", bytes(900))
        end = 10 * m.store.max_log_offset
        answers = {**GOOD, 28: (0, json.dumps({"table": {"commitLogMaxOffset": str(end)}}).encode())}
        with Odd(answers) as odd, MessageStore.open(
                tmp_path / "s", **{**SMALL, **FAST}, role="slave", ha_master=m.store.replication().address,
                ha_master_broker=odd.address) as s:
            joined(m.store)
            until(lambda: s.topic_table.get("T") is not None, 20_000)
            until(lambda: odd.asked.count(21) > 2, 20_000)          # some rounds
            assert s.offsets.query("G", "T", 1) == -1 and not (tmp_path / "s/config/delayOffset.json").exists()
            while m.store.max_log_offset < end:
                m.store.put("T", bytes(900))
            until(lambda: s.offsets.query("G", "T", 1) == 3, 20_000)
            assert s.max_log_offset == end


VERSION = {"counter": 3, "stateVersion": 0, "timestamp": 1_700_000_000_000}
GOOD = {21: (0, json.dumps({"dataVersion": VERSION, "topicConfigTable": {"T": {"topicName": "T", "perm": 6}}}).encode()),
        43: (0, b'{"offsetTable":{"T@G":{0:2,1:3}}}'), 45: (0, b'{"offsetTable":{1:4,2:5}}'),
        201: (0, json.dumps({"dataVersion": VERSION, "subscriptionGroupTable": {"G": {"groupName": "G"}}}).encode())}


@pytest.mark.parametrize(("wrong", "says"), [
    ({21: (0, b"[]")}, "request 21 is no JSON object"), ({21: (0, b"{")}, "request 21 is no JSON"),
    ({21: (0, b'{"topicConfigTable":{"T":1}}')}, "not an entry"), ({201: (0, b'{"subscriptionGroupTable":{}}')},
                                                                   "no dataVersion"),
    ({43: (0, b'{"offsetTable":{"T@G":{0:"x"}}}')}, "no number of 64 bits"), ({45: (0, b'{"offsetTable":{1:"x"}}')},
                                                                              "no number"),
    ({43: (1, b"")}, "answers request 43 with code 1"), ({60: (0, b"\xff" * 56)}, "below 0"),
    ({45: (0, b'{"offsetTable":{1:-1}}')}, "no number of 63 bits"),
    ({45: (0, b'{"offsetTable":{1:9223372036854775808}}')}, "no number of 63 bits"),
    ({60: (0, b"\x7f" * 56)}, "or 4611686018427387904 or more")])
def test_odd_answers_change_nothing(tmp_path: Path, wrong: dict, says: str, caplog: pytest.LogCaptureFixture) -> None:
    """The event names the answer; what came before it is kept, and nothing else changes."""
    odd = Odd({**GOOD, **wrong})
    with odd, MessageStore.open(tmp_path / "s", **{**SMALL, **FAST, "timer_wheel_enable": True}, role="slave",
                                     ha_master="127.0.0.1:1", ha_master_broker=odd.address) as s:
        until(lambda: says in caplog.text, 20_000)      # on a busy machine an answer may come too late before
        (code,) = wrong
        assert (s.topic_table.get("T") is None) == (code == 21)
        assert (s.offsets.query("G", "T", 1) == 3) == (code in (45, 60))
        odd.answers = GOOD
        copied(s)
        assert s.offsets.query("G", "T", 1) == 3
        assert config(tmp_path / "s", "delayOffset.json") == {"offsetTable": {"1": 4, "2": 5}}
        assert {21, 43, 45, 201, 402, 60, 61} <= set(odd.asked)

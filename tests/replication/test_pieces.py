"""Tables that a frame has no room for: a slave gets them in pieces, and whole from a master that has none."""
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_store import Broker, MessageStore
from rmq_store.broker import pieces
from rmq_store.remoting.client import Client, NoAnswer
from rmq_store.remoting.frame import Frame
from rmq_store.replication import metadata
from tests.broker.peer import Peer
from tests.replication.test_metadata import FAST, GOOD, SMALL, Odd, copied, follower, leader
from tests.soon import until

LONG = "x" * 110


def fill(store: MessageStore, count: int) -> None:
    for n in range(count):
        store.topic_table.set(f"{LONG}{n}")
        store.group_table.set(f"g-{LONG}{n}")
        store.offsets.commit(f"g-{LONG}{n}", f"{LONG}{n}", 1, n)


def tables(store: MessageStore) -> tuple[object, ...]:
    return (store.topic_table.content()["topicConfigTable"], store.group_table.content()["subscriptionGroupTable"],
            store.offsets.table())


def test_a_slave_gets_tables_that_no_frame_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "BODY_MAX", 50_000)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 20_000)
    with leader(tmp_path / "m") as m:
        m.store.put("T", b"x")
        fill(m.store, 300)
        with Peer(m.address) as tool:
            for code, how in ((21, "topicSeq and maxTopicNum"), (201, "groupSeq and maxGroupNum"), (43, "maxOffsetNum")):
                refused = tool.ask(code)
                assert refused.code == 1 and "in pieces, by " + how in refused.remark
        with follower(tmp_path / "s", m) as s:
            until(lambda: s.max_log_offset == m.store.max_log_offset, 20_000)
            copied(s)
            assert tables(s) == tables(m.store)


def test_a_master_without_pieces_says_all(tmp_path: Path) -> None:
    with Odd(GOOD) as odd, MessageStore.open(tmp_path / "s", **{**SMALL, **FAST}, role="slave", ha_master="127.0.0.1:1",
                                             ha_master_broker=odd.address) as s:
        copied(s)
        assert s.offsets.query("G", "T", 1) == 3 and s.topic_table.get("T") is not None


@pytest.fixture
def master(tmp_path: Path) -> Broker:
    with Broker.open(tmp_path / "m", profile="test") as broker:
        fill(broker.store, 50)
        yield broker


def test_pieces_as_real_peers_ask_for_them(master: Broker) -> None:
    """RocketMQ 5.5: rows from `topicSeq` on, by name; from 0 on without a version, or with another one."""
    with Peer(master.address) as tool:
        whole = json.loads(tool.ask(21).body)
        names, version = sorted(whole["topicConfigTable"]), json.dumps(whole["dataVersion"])
        for seq, most, said, first in ((0, 20, "", 0), (20, 20, version, 20), (20, 20, "", 0), (40, 1000, version, 40),
                                       (20, 20, '{"counter":99}', 0), (20, 20, "{", 0), (999, 5, version, 999),
                                       (-5, 5, version, 0)):
            answer = tool.ask(21, topicSeq=seq, maxTopicNum=most, dataVersion=said)
            body = json.loads(answer.body)
            assert answer.ext["totalTopicNum"] == str(len(names)) and body["dataVersion"] == whole["dataVersion"]
            assert sorted(body["topicConfigTable"]) == names[first:first + most]
        answer = tool.ask(201, groupSeq=0, maxGroupNum=5)
        assert int(answer.ext["totalGroupNum"]) >= 50 and len(json.loads(answer.body)["subscriptionGroupTable"]) == 5


@pytest.mark.parametrize("code", [21, 201])
def test_a_table_that_changes_between_two_pieces_begins_anew(
        master: Broker, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(metadata, "PIECE", 20)
    client, changes = Client(master.address), 3
    ask = client.ask

    def asked(*what: object) -> Frame:
        nonlocal changes
        answer = ask(*what)
        if changes:
            changes -= 1
            table = master.store.topic_table if code == 21 else master.store.group_table
            table.remove(f"{LONG}{changes}" if code == 21 else f"g-{LONG}{changes}")
        return answer

    monkeypatch.setattr(client, "ask", asked)
    found = json.loads(metadata._asked_for(client, code))
    client.close()
    unit, key = metadata.NAMED[code]
    whole = master.store.topic_table if unit == "Topic" else master.store.group_table
    assert found[key] == whole.content()[key] and f"{LONG}1" not in found[key] and f"g-{LONG}1" not in found[key]
    assert found["dataVersion"] == whole.content()["dataVersion"]


def piece(total: str, rows: dict[str, object]) -> Callable[..., Frame]:
    body = json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": rows}).encode()
    return lambda code, ext: Frame(0, 1, {"totalTopicNum": total}, body)


@pytest.mark.parametrize(("answer", "error"), [
    (piece("5", {}), OSError), (piece("5", {"T": {}}), OSError), (piece("x", {"T": {}}), ValueError),
    (piece("5", None), ValueError)])      # type: ignore[arg-type]
def test_a_master_whose_pieces_are_none(answer: Callable[..., Frame], error: type[Exception],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PIECES_MAX", 20)
    client = Client("127.0.0.1:1")
    monkeypatch.setattr(client, "ask", answer)
    with pytest.raises(error):
        metadata._asked_for(client, 21)
    assert not issubclass(error, NoAnswer)

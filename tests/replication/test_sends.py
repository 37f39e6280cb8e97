"""Sends to a broker that is a SYNC_MASTER: the network thread answers them when slaves have acknowledged them, and the
processor in Python is the reference for every code."""
import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rmq_store import Broker
from rmq_store.base.io._io import ProbeIo
from rmq_store.codec.batch import encode_batch
from rmq_store.errors import DurabilityError
from rmq_store.remoting.frame import ONEWAY
from tests.broker.peer import Peer
from tests.replication.pairs import SMALL, connected, joined, same_log, slave
from tests.soon import until

PATIENT = {"waitTimeMillsInSendQueue": 60_000}
SENT, DISK, NO_SLAVE, LATE, FAILED = 0, 10, 11, 12, 14
LONG = {"slave_timeout_ms": 60_000}
HEAD = {"a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1700000000000, "h": 0, "i": "", "j": 0}


@contextmanager
def sync_master(path: Path, **more: Any) -> Iterator[tuple[Broker, Peer]]:
    """A broker that knows the topic T, and a client."""
    with Broker.open(path, listen="127.0.0.1:0", namesrv_listen=None, brokerRole="SYNC_MASTER", ha_listen="127.0.0.1:0",
                     **{**SMALL, **PATIENT, **more}) as broker, Peer(broker.address) as peer:
        peer.put("T", properties={"WAIT": "false"})
        yield broker, peer


def native(broker: Broker) -> int:
    return broker._front.requests()[310] + broker._front.requests()[320]


def batch(peer: Peer) -> Any:
    return peer.put("T", body=encode_batch([{"body": b"a"}, {"body": b"b"}]), code=320, m="true")


@pytest.mark.parametrize("how", [{}, {"write_path": "pool"}, {"flush_mode": "sync"},
                                 {"flush_mode": "sync", "write_path": "pool"}], ids=str)
def test_they_are_answered_when_a_slave_has_them(tmp_path: Path, how: dict[str, Any]) -> None:
    with sync_master(tmp_path / "m", **LONG, **how) as (broker, peer), slave(tmp_path / "s", broker.store) as s:
        joined(broker.store)
        before = native(broker)
        for i in range(20):
            answer = peer.put("T", body=b"%d" % i) if i % 4 else batch(peer)
            assert answer.code == SENT
            assert s.max_log_offset > int(answer.ext["msgId"][-16:], 16)
            assert how.get("flush_mode") != "sync" or broker.store.stats()["flushed"] == broker.store.max_log_offset
        assert peer.put("T", properties={"WAIT": "false"}).code == SENT
        assert native(broker) == before + 21
        many = [peer.send(310, b"x", **HEAD) for _ in range(300)]
        assert {peer.answer(one).code for one in many} == {SENT}
        until(lambda: s.max_log_offset == broker.store.max_log_offset, 20_000)
        same_log(broker.store, s)


@pytest.mark.parametrize("by_python", [False, True])
@pytest.mark.parametrize("how", [{}, {"flush_mode": "sync"}], ids=str)
def test_no_slave(tmp_path: Path, how: dict[str, Any], by_python: bool) -> None:
    with sync_master(tmp_path / "m", **how) as (broker, peer):
        before = native(broker)
        if by_python:
            broker._front._network.publish([], [])
        for answer in (peer.put("T"), batch(peer)):
            assert (answer.code, answer.remark) == (NO_SLAVE, "")
            assert answer.ext["msgId"]
        assert peer.put("T", properties={"WAIT": "false"}).code == SENT
        assert native(broker) == before + (0 if by_python else 3)
        assert broker.store.wait_dispatched(30)
        assert broker.store.max_log_offset > int(answer.ext["msgId"][-16:], 16)


@pytest.mark.parametrize(("how", "by_python"), [({}, False), ({}, True), ({"flush_mode": "sync"}, False)], ids=str)
def test_a_slave_that_acknowledges_nothing(tmp_path: Path, how: dict[str, Any], by_python: bool) -> None:
    """All are late together, and not one after the other."""
    with sync_master(tmp_path / "m", slave_timeout_ms=50, **how) as (broker, peer), connected(broker.store) as mute:
        mute.report(0)
        joined(broker.store)
        if by_python:
            broker._front._network.publish([], [])
        many = [peer.send(310, b"x", **HEAD) for _ in range(60)]
        assert {peer.answer(one).code for one in many} == {LATE}


def test_an_acknowledgement_answers_what_it_covers(tmp_path: Path) -> None:
    with sync_master(tmp_path / "m", **LONG) as (broker, peer), connected(broker.store) as by_hand:
        by_hand.report(0)
        joined(broker.store)
        many = [peer.send(310, b"%d" % i, **HEAD) for i in range(10)]
        until(lambda: broker.store.replicas()[0].sent_bytes == broker.store.max_log_offset
              and broker.store.stats()["puts"] == 11, 20_000)
        by_hand.report(broker.store.max_log_offset - 1)
        first = [peer.answer(one) for one in many[:-1]]
        assert {answer.code for answer in first} == {SENT}
        by_hand.report(broker.store.max_log_offset)
        assert peer.answer(many[-1]).code == SENT


@pytest.mark.parametrize("by_python", [False, True])
def test_what_slaves_never_get_is_not_sent(tmp_path: Path, by_python: bool) -> None:
    """The write fails that would let them have it: nobody waits for them, and nobody says that it is stored."""
    probe = ProbeIo(keep_bytes=False)
    how = {"write_path": "pool", "flush_backend": "fdatasync", "segment_prezero": "off", **LONG}
    codes = []
    with suppress(DurabilityError), sync_master(tmp_path / "m", _io=probe, **how) as (broker, peer), \
            connected(broker.store) as mute:
        mute.report(0)
        joined(broker.store)
        if by_python:
            broker._front._network.publish([], [])
        assert broker.store.wait_dispatched(30)
        probe.fail("pwrite", errno=errno.EIO, path="/commitlog/")
        codes.append(peer.put("T").code)
    assert (codes, probe.hits) == ([FAILED], 1)


@pytest.mark.parametrize("by_python", [False, True])
def test_too_few_in_sync(tmp_path: Path, by_python: bool) -> None:
    """Nothing is stored, of a send without an answer neither."""
    with sync_master(tmp_path / "m", total_replicas=2, in_sync_replicas=2, **LONG) as (broker, peer):
        end = broker.store.max_log_offset
        if by_python:
            broker._front._network.publish([], [])
        refused = peer.put("T")
        assert (refused.code, "in-sync replicas" in refused.remark) == (1, True)
        peer.send(310, b"x", frame_flag=ONEWAY, **HEAD)
        assert peer.put("T").code == 1
        assert broker.store.max_log_offset == end
        with slave(tmp_path / "s", broker.store) as s:
            joined(broker.store)
            assert peer.put("T").code == SENT
            assert s.max_log_offset == broker.store.max_log_offset


def test_the_end_answers_those_that_wait(tmp_path: Path) -> None:
    with sync_master(tmp_path / "m", slave_timeout_ms=600_000) as (broker, peer), connected(broker.store) as mute:
        mute.report(0)
        joined(broker.store)
        one = peer.send(310, b"x", **HEAD)
        until(lambda: broker.store.stats()["puts"] == 2, 20_000)
        broker.close()
        assert peer.answer(one).code == LATE

"""Slaves of slaves: a slave with ha_listen serves others what it has, as a RocketMQ slave does (DefaultHAService accepts in
every role)."""
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.replication.pairs import caught_up, fill, joined, master, same_log, same_queues, slave
from tests.replication.test_begin_anew import anew
from tests.replication.test_kills import Other
from tests.soon import until

LISTENS = {"ha_listen": "127.0.0.1:0"}
RARELY = {"ha_send_heartbeat_interval_ms": 3_000_000, "ha_housekeeping_interval_ms": 3_600_000}


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
def test_the_last_of_a_chain_has_the_log_of_the_first(tmp_path: Path, flush_mode: str) -> None:
    with master(tmp_path / "a", flush_mode=flush_mode) as a, slave(tmp_path / "b", a, flush_mode=flush_mode, **LISTENS) as b:
        joined(a)
        with slave(tmp_path / "c", b) as c:
            joined(b)
            fill(a, 300)
            anew(a)
            caught_up(b, a)
            caught_up(c, a)
            same_log(a, c)
            same_queues(a, c)
            until(lambda: [r.offset for r in b.replicas()] == [a.max_log_offset], 20_000)
            assert b.replication().address == c.replication().master and b.replication().master == a.replication().address


def test_a_message_travels_while_the_first_is_silent(tmp_path: Path) -> None:
    """The slave in the middle wakes its own slaves when it has appended, not by the beat of ha_send_heartbeat_interval_ms."""
    with master(tmp_path / "a") as a, slave(tmp_path / "b", a, **LISTENS, **RARELY) as b:
        joined(a)
        with slave(tmp_path / "c", b) as c:
            joined(b)
            for n in range(20):
                a.put("T", b"x%d" % n)
                assert bytes(c.get("T", 0, n, wait=30)[0].body) == b"x%d" % n


@pytest.mark.parametrize("cycles", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_the_middle_is_killed(tmp_path: Path, cycles: int) -> None:
    with master(tmp_path / "a") as a:
        a.put("T", b"first")
        for cycle in range(cycles):
            middle = Other("middle", tmp_path / "b", a.replication().address, cycle)
            address = middle.line()
            with slave(tmp_path / "c", address) as c:
                until(lambda c=c: c.replication().state == "follows", 20_000)
                fill(a, 50, cycle)
                anew(a)
                middle.kill()
                fill(a, 50, cycle + 1000)
        with slave(tmp_path / "b", a, **LISTENS) as b, slave(tmp_path / "c", b) as c:
            caught_up(b, a)
            caught_up(c, a)
            same_log(a, c)
            same_queues(a, c)


def test_a_slave_that_is_ahead_of_the_middle_waits_for_it(tmp_path: Path) -> None:
    """The middle lost its newest messages with its machine, and the master still has them."""
    with master(tmp_path / "a") as a:
        with slave(tmp_path / "b", a) as b:
            joined(a)
            fill(a, 30)
            caught_up(b, a)
        with slave(tmp_path / "c", a) as c:
            joined(a)
            fill(a, 30, 1)
            caught_up(c, a)
        with MessageStore.open(tmp_path / "c", readonly=True) as c:
            assert c.max_log_offset == a.max_log_offset
        with slave(tmp_path / "b", a, **LISTENS) as b, slave(tmp_path / "c", b) as c:
            caught_up(b, a)
            until(lambda: c.replication().state == "follows", 20_000)
            fill(a, 30, 2)
            caught_up(c, a)
            same_log(a, c)


def test_an_address_that_is_taken_is_said_before_the_directory_is_a_slaves(tmp_path: Path) -> None:
    with master(tmp_path / "a") as a:
        taken = a.replication().address
        with pytest.raises(OSError, match="in use"):
            slave(tmp_path / "b", a, ha_listen=taken)
        assert not (tmp_path / "b" / "config" / "replica.json").exists()
        with slave(tmp_path / "b", a, **LISTENS):
            joined(a)

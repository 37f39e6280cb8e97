"""Peers that are none: a wrong length or offset, and silence, end with a closed connection and a word in the log."""
import contextlib
import struct
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.replication.pairs import SMALL, Listening, connected, fill, log_of, master, slave
from tests.soon import until


@pytest.mark.parametrize("first", [-1, -(1 << 63), (1 << 63) - 1, 1 << 40])
def test_master_closes_on_an_offset_that_it_has_not(tmp_path: Path, first: int) -> None:
    with master(tmp_path / "m") as m:
        fill(m, 5)
        with connected(m) as peer:
            peer.report(first)
            assert peer.closed_by_peer()
        with connected(m) as peer:
            peer.report(m.max_log_offset)
            peer.report(m.max_log_offset + 1)       # acknowledges what it was not sent
            assert peer.closed_by_peer()
        until(lambda: m.replicas() == [])


def test_master_does_not_repeat_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A slave that is refused comes back every few seconds, for days."""
    with master(tmp_path / "m") as m:
        fill(m, 5)
        for offset in (1 << 40, 1 << 40, 1 << 40, 1 << 41):
            with connected(m) as peer:
                peer.report(offset)
                assert peer.closed_by_peer()
        until(lambda: f"it wants to compare from offset {1 << 41}" in caplog.text)
        assert caplog.text.count(f"it wants to compare from offset {1 << 40}") == 1


def test_master_with_a_slave_that_sends_byte_by_byte(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m:
        fill(m, 200)
        end = m.max_log_offset
        with connected(m) as peer:
            for byte in struct.pack(">q", 1000):
                peer.socket.sendall(bytes([byte]))
            at, got = 1000, b""
            while at < end:
                offset, data = peer.read_frame()
                assert offset == at
                assert offset // 65536 == (offset + len(data) - 1) // 65536 or not data
                got += data
                at += len(data)
            assert got == log_of(tmp_path / "m", 1000, end)
            offset, data = peer.read_frame()        # a heartbeat
            assert (offset, data) == (end, b"")


def test_master_drops_the_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with master(tmp_path / "m", ha_housekeeping_interval_ms=100,
                ha_send_heartbeat_interval_ms=50) as m:
        with connected(m) as never, connected(m) as once:
            once.report(0)
            assert never.closed_by_peer()
            assert once.closed_by_peer()
        until(lambda: "it said nothing" in caplog.text)


def test_master_with_a_slave_that_reads_nothing(tmp_path: Path) -> None:
    """Neither puts nor cleaning wait for it."""
    with master(tmp_path / "m") as m, connected(m) as peer:
        fill(m, 1)
        peer.report(1)
        fill(m, 300)
        assert m.max_log_offset > 100_000


def test_master_has_room_for_so_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with master(tmp_path / "m") as m:
        with contextlib.ExitStack() as stack:
            for _ in range(64):
                stack.enter_context(connected(m)).report(0)
            until(lambda: sum(r.offset == 0 for r in m.replicas()) == 64, 20_000)
            with connected(m) as one_more:
                assert one_more.closed_by_peer()
        until(lambda: m.replicas() == [])
        until(lambda: "64 slaves are connected" in caplog.text)


def test_connections_that_say_nothing_shut_no_slave_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with master(tmp_path / "m") as m, contextlib.ExitStack() as stack:
        mutes = [stack.enter_context(connected(m)) for _ in range(64)]
        until(lambda: len(m.replicas()) == 64, 20_000)
        with slave(tmp_path / "s", m) as s:
            m.put("T", b"x")
            until(lambda: s.max_log_offset == m.max_log_offset, 20_000)
            assert mutes[0].closed_by_peer()
            until(lambda: "another connection needed its place" in caplog.text)


def record(store_path: Path, n: int) -> bytes:
    return log_of(store_path, 0, n)


@pytest.fixture
def source(tmp_path: Path) -> bytes:
    """The bytes of a log of 100 messages."""
    with master(tmp_path / "source") as m:
        fill(m, 100)
        return log_of(tmp_path / "source", 0, m.max_log_offset)


@pytest.mark.parametrize("cut", [1, 7, 333])
def test_slave_takes_frames_cut_anywhere(tmp_path: Path, source: bytes, cut: int) -> None:
    part = source[:65536 + 4000] if cut > 1 else source[:5000]
    with Listening() as listening, slave(tmp_path / "s", listening.address) as s, listening.accept() as peer:
        assert peer.read_report() == 0
        for i in range(0, len(part), cut):
            peer.frame(i, part[i:i + cut])
        until(lambda: s.max_log_offset > len(part) - 2000, 20_000)
        end = s.max_log_offset
        assert log_of(tmp_path / "s", 0, end) == source[:end]


@pytest.mark.parametrize("what", ["offset", "negative size", "huge size", "garbage", "magic", "place", "heartbeat", "blank"])
def test_slave_takes_nothing_wrong(tmp_path: Path, source: bytes, what: str, caplog: pytest.LogCaptureFixture) -> None:
    with Listening() as listening, slave(tmp_path / "s", listening.address) as s:
        with listening.accept() as peer:
            assert peer.read_report() == 0
            first = struct.unpack_from(">i", source)[0]
            peer.frame(0, source[:first])
            while peer.read_report() < first:
                pass
            if what == "offset":
                peer.frame(first + 1, source[first:first + 500])
            elif what == "heartbeat":
                peer.frame(first - 1)
            elif what == "negative size":
                peer.frame(first, size=-1)
            elif what == "huge size":
                peer.frame(first, size=1 << 30)
            elif what == "garbage":
                peer.frame(first, b"\xff" * 100)
            elif what == "magic":
                peer.frame(first, struct.pack(">ii", 100, 0x12345678) + b"\0" * 92)
            elif what == "place":
                peer.frame(first, source[:first])       # a record of another place
            else:
                peer.frame(first, struct.pack(">iI", 77, 0xCBD43194) + b"\0" * 69)
            assert peer.closed_by_peer()
        assert s.max_log_offset == first
        assert log_of(tmp_path / "s", 0, first) == source[:first]
        until(lambda: "does not follow master" in caplog.text)
        with listening.accept() as peer:                # it comes back, compares, and continues
            at = peer.read_report()
            assert 0 < at <= first
            peer.frame(at, source[at:first * 3])
            until(lambda: s.max_log_offset > first, 20_000)
        end = s.max_log_offset
        assert log_of(tmp_path / "s", 0, end) == source[:end]


def test_an_empty_slave_begins_where_a_log_can_be(tmp_path: Path, source: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Not where sums of offsets wrap around; and where the next master says, if nothing whole came from the one before it."""
    size, first = SMALL["segment_size_bytes"], struct.unpack_from(">i", source)[0]

    def at(offset: int) -> bytes:
        return source[:28] + struct.pack(">q", offset) + source[36:first]

    with Listening() as listening, slave(tmp_path / "s", listening.address) as s:
        for high in ((1 << 63) // size * size - size, (1 << 60) + size):
            with listening.accept() as peer:
                assert peer.read_report() == 0
                peer.frame(high, at(high))
                assert peer.closed_by_peer()
        until(lambda: "does not follow master" in caplog.text)
        for begin in (7 * size, 3 * size, 5 * size):
            with listening.accept() as peer:
                assert peer.read_report() == 0
                peer.frame(begin, at(begin)[:-1])
                until(lambda begin=begin: s.replication().master_offset == begin + first - 1, 20_000)
        with listening.accept() as peer:
            assert peer.read_report() == 0
            peer.frame(2 * size, at(2 * size))
            until(lambda: s.max_log_offset == 2 * size + first, 20_000)
            assert s.wait_dispatched(20)
            assert s.max_offset("T0", 0) == 1


def test_a_master_that_closes_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The protocol has no word for a beginning that was deleted: the slave's log says that it may be one, also behind another
    loss at the same place."""
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        fill(m, 300)
        until(lambda: s.max_log_offset == m.max_log_offset, 20_000)
        address = m.replication().address
    for file in sorted((tmp_path / "s" / "commitlog").iterdir())[1:]:
        file.unlink()
    (tmp_path / "m" / "commitlog" / f"{0:020d}").unlink()
    with MessageStore.open(tmp_path / "s", **SMALL, role="slave", ha_master=address, commitlog_loss_accepted=True) as s:
        until(lambda: "Connection refused" in caplog.text, 20_000)
        with master(tmp_path / "m", ha_listen=address):
            until(lambda: "has deleted what lies before" in caplog.text, 20_000)
            until(lambda: "begins behind it: see the log of the master" in caplog.text, 20_000)
            assert s.replication().state == "waits"


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">qi", 0, -1),
                                  struct.pack(">qi", 0, 1 << 30)])
def test_a_slave_at_an_address_of_something_else(tmp_path: Path, said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with Listening() as listening, slave(tmp_path / "s", listening.address), listening.accept() as peer:
        assert peer.read_report() == 0
        peer.socket.sendall(said)
        assert peer.closed_by_peer()
        until(lambda: "is no frame of RocketMQ's HA protocol" in caplog.text)
    assert "segment_size_bytes" not in caplog.text


def test_slave_keeps_files_of_its_size_only(tmp_path: Path) -> None:
    with Listening() as listening, slave(tmp_path / "s", listening.address) as s, listening.accept() as peer:
        assert peer.read_report() == 0
        peer.frame(SMALL["segment_size_bytes"] + 4096, b"x" * 100)
        assert peer.closed_by_peer()
        assert s.max_log_offset == 0

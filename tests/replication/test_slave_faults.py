"""What may go wrong on a slave: wrong checksums, a full disk, a failed sync, a log that ends with a file, or has no record."""
import errno
import os
import random
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests.replication.pairs import SMALL, Listening, caught_up, fill, joined, log_of, master, same_log, slave
from tests.soon import until

SIZE = SMALL["segment_size_bytes"]


@pytest.fixture
def source(tmp_path: Path) -> bytes:
    with master(tmp_path / "source", record_crc=True) as m:
        fill(m, 40)
        return log_of(tmp_path / "source", 0, m.max_log_offset)


@pytest.mark.parametrize("where", ["body", "properties"])      # of which only the record's own checksum tells
def test_a_record_with_a_wrong_checksum(tmp_path: Path, source: bytes, where: str, caplog: pytest.LogCaptureFixture) -> None:
    sizes = [struct.unpack_from(">i", source)[0]]
    sizes.append(struct.unpack_from(">i", source, sizes[0])[0])
    good, end = sizes[0], sum(sizes)
    at = good + (100 if where == "body" else sizes[1] - 25)
    wrong = source[:at] + bytes([source[at] ^ 1]) + source[at + 1:]
    with Listening() as listening, slave(tmp_path / "s", listening.address) as s:
        with listening.accept() as peer:
            assert peer.read_report() == 0
            peer.frame(0, wrong[:end])
            reports = []
            with pytest.raises((EOFError, ConnectionError)):
                while True:
                    reports.append(peer.read_report())
            assert [n for n in reports if n > good] == []
        assert s.max_log_offset == good             # what was before it is kept
        until(lambda: f"the checksum of the record that it sent for offset {good} is wrong" in caplog.text, 20_000)
        with listening.accept() as peer:            # and is asked for again
            begin = peer.read_report()
            assert 0 < begin <= good
            peer.frame(begin, source[begin:end])
            until(lambda: s.max_log_offset == end, 20_000)
            until(lambda: s.replication().state == "follows", 20_000)


def test_a_slave_that_ends_with_a_file_compares_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The end-of-file record takes more than what is compared: bytes that follow it are no messages."""
    sizes = {"segment_size_bytes": 4 * SIZE, "message_size_max_bytes": 3 * SIZE}
    for name, body in (("m", b"m"), ("s", b"s")):
        with MessageStore.open(tmp_path / name, **{**SMALL, **sizes}) as one:
            one.put("T", body * SIZE, born_timestamp=1)
            one.put("T", bytes(3 * SIZE), born_timestamp=1)      # does not fit in
            one.flush()
    log = tmp_path / "s" / "commitlog"
    (log / f"{4 * SIZE:020d}").unlink()             # the log of the slave ends exactly where its first file does
    with master(tmp_path / "m", **sizes) as m, slave(tmp_path / "s", m, commitlog_loss_accepted=True, **sizes) as s:
        until(lambda: s.replication().state == "refused", 20_000)
        until(lambda: "the logs part at or before offset" in caplog.text, 20_000)


def test_other_filler_is_no_difference(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        joined(m)
        while m.max_log_offset < SIZE:
            m.put("T", bytes(30_000))
        caught_up(s, m)
    with (tmp_path / "s" / "commitlog" / f"{0:020d}").open("r+b") as f:
        f.seek(SIZE - 10)
        f.write(b"remainders")
    (tmp_path / "s" / "commitlog" / f"{SIZE:020d}").unlink()
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m, commitlog_loss_accepted=True) as s:
        caught_up(s, m)
        assert s.replication().state == "follows"


def test_a_master_that_moved_on_while_the_first_file_was_made(tmp_path: Path) -> None:
    """The connection was lost before the first file was there, and by then the master's last file is another one."""
    probe = ProbeIo()
    with master(tmp_path / "m") as m:
        m.put("T", b"x")
        record = log_of(tmp_path / "m", 0, m.max_log_offset)
    with Listening() as listening, slave(tmp_path / "s", listening.address, _io=probe) as s:
        probe.hold("open", ".alloc")
        with listening.accept() as peer:
            assert peer.read_report() == 0
            peer.frame(0, record)
            probe.wait_held()
        end, reported = SIZE + len(record), 0
        while reported != end:          # it comes back while the file is being made
            with listening.accept() as peer, suppress(EOFError, ConnectionError):
                assert peer.read_report() == 0
                probe.release()
                peer.frame(SIZE, record[:28] + struct.pack(">q", SIZE) + record[36:])
                while reported != end:
                    reported = peer.read_report()
        assert s.wait_dispatched(20)
    with slave(tmp_path / "s", "127.0.0.1:1") as s:
        assert (s.min_log_offset, s.max_log_offset, s.max_offset("T", 0)) == (SIZE, SIZE + len(record), 1)


def test_a_full_disk_heals(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The slave keeps what it has, says what is wrong, stays connected, and continues by itself."""
    probe = ProbeIo()
    with master(tmp_path / "m", ha_send_heartbeat_interval_ms=20, ha_housekeeping_interval_ms=500) as m, \
            slave(tmp_path / "s", m, _io=probe, ha_send_heartbeat_interval_ms=20, ha_housekeeping_interval_ms=500) as s:
        joined(m)
        fill(m, 20)
        caught_up(s, m)
        probe.fail("fallocate", 1, errno.ENOSPC, path="commitlog", sticky=True)
        probe.fail("open", 1, errno.ENOSPC, path=".alloc", sticky=True)
        fill(m, 500, 1)
        until(lambda: s.replication().state == "stalled", 20_000)
        until(lambda: "No space left on device" in caplog.text and "cannot store what master" in caplog.text, 20_000)
        end = s.max_log_offset
        before = [r.connected_ms for r in m.replicas()]
        until(lambda: [r.connected_ms > 1500 + before[0] for r in m.replicas()] == [True], 20_000)   # three times the silence
        assert s.max_log_offset == end
        assert [r.offset for r in m.replicas()] == [end]
        probe.clear()
        caught_up(s, m)
        until(lambda: s.replication().state == "follows", 20_000)
        same_log(m, s)


def test_what_a_full_disk_has_is_acknowledged(tmp_path: Path) -> None:
    """At once, while the slave waits for its next file."""
    probe, quiet = ProbeIo(), {"ha_send_heartbeat_interval_ms": 600_000, "ha_housekeeping_interval_ms": 3_600_000}
    with master(tmp_path / "m") as m:
        fill(m, 500)
        log = log_of(tmp_path / "m", 0, m.max_log_offset)
    assert len(log) > 3 * SIZE
    with Listening() as listening, slave(tmp_path / "s", listening.address, _io=probe, **quiet) as s, \
            listening.accept() as peer:
        assert peer.read_report() == 0
        probe.fail("fallocate", 1, errno.ENOSPC, path="commitlog", sticky=True)
        probe.fail("open", 2, errno.ENOSPC, path=".alloc", sticky=True)
        peer.frame(0, log)
        until(lambda: s.replication().state == "stalled", 20_000)
        assert 0 < s.max_log_offset < len(log)
        while peer.read_report() != s.max_log_offset:
            pass
        probe.clear()
        until(lambda: s.max_log_offset == len(log), 20_000)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM], ids=errno.errorcode.get)
def test_a_write_that_lacks_something_heals(tmp_path: Path, code: int) -> None:
    probe, pace = ProbeIo(), {"ha_send_heartbeat_interval_ms": 20, "ha_housekeeping_interval_ms": 500}
    with master(tmp_path / "m", **pace) as m, slave(tmp_path / "s", m, _io=probe, **pace) as s:
        joined(m)
        fill(m, 5)
        caught_up(s, m)
        end, before = s.max_log_offset, [r.connected_ms for r in m.replicas()]
        probe.fail("pwrite", 1, code, path="commitlog", sticky=True)
        fill(m, 5, 1)
        until(lambda: s.replication().state == "stalled", 20_000)
        until(lambda: probe.hits >= 3, 20_000)
        assert s.max_log_offset == end and [r.offset for r in m.replicas()] == [end] and s.stats()["errno"] == 0
        assert [r.connected_ms > before[0] for r in m.replicas()] == [True]         # the same connection
        probe.clear()
        caught_up(s, m)
        until(lambda: s.replication().state == "follows", 20_000)
        same_log(m, s)


def test_a_slave_closes_while_its_write_lacks_something(tmp_path: Path) -> None:
    probe = ProbeIo()
    with master(tmp_path / "m") as m:
        with slave(tmp_path / "s", m, _io=probe) as s:
            joined(m)
            fill(m, 5)
            caught_up(s, m)
            probe.fail("pwrite", 1, errno.ENOSPC, path="commitlog", sticky=True)
            fill(m, 5, 1)
            until(lambda: s.replication().state == "stalled", 20_000)
        with slave(tmp_path / "s", m) as s:
            assert not s.stats()["recovered"]
            caught_up(s, m)
            same_log(m, s)


@pytest.mark.parametrize("short", [False, True])
def test_a_write_that_fails(tmp_path: Path, short: bool) -> None:
    """A short one goes on. One that fails is the end: it is not tried again, and what it wrote is never acknowledged."""
    probe = ProbeIo()
    with master(tmp_path / "m") as m:
        s = slave(tmp_path / "s", m, _io=probe)
        joined(m)
        fill(m, 5)
        caught_up(s, m)
        before = s.max_log_offset
        probe.fail("pwrite", 1, None if short else errno.EIO, path="commitlog", short=short)
        fill(m, 5, 1)
        if short:
            caught_up(s, m)
            assert probe.hits == 1
            same_log(m, s)
            s.close()
            return
        until(lambda: s.replication().state == "failed", 20_000)
        until(lambda: m.replicas() == [], 20_000)
        assert s.max_log_offset == before
        with pytest.raises(errors.DurabilityError):
            s.close()


def test_a_failed_sync_is_the_end(tmp_path: Path) -> None:
    """It is never tried again, and nothing behind it is acknowledged."""
    probe = ProbeIo()
    with master(tmp_path / "m") as m:
        s = slave(tmp_path / "s", m, _io=probe, flush_mode="sync", flush_backend="fdatasync")
        joined(m)
        fill(m, 5)
        caught_up(s, m)
        until(lambda: [r.offset for r in m.replicas()] == [m.max_log_offset], 20_000)
        durable = m.max_log_offset
        probe.fail("fdatasync", 1, errno.EIO, path="commitlog", sticky=True)
        fill(m, 5, 1)
        until(lambda: s.replication().state == "failed", 20_000)
        until(lambda: m.replicas() == [], 20_000)
        with pytest.raises(errors.DurabilityError):
            s.flush()
        assert s.stats()["flushed"] == durable
        with pytest.raises(errors.DurabilityError):
            s.close()


def test_a_sync_that_fails_while_the_master_is_away(tmp_path: Path) -> None:
    """The slave has failed then, and not when a master comes back."""
    probe = ProbeIo()
    with master(tmp_path / "m") as m:
        s = slave(tmp_path / "s", m, _io=probe, flush_backend="fdatasync", flush_interval_ms=3_600_000)
        joined(m)
        fill(m, 5)
        caught_up(s, m)
    until(lambda: s.replication().state == "waits", 20_000)
    probe.fail("fdatasync", 1, errno.EIO, path="commitlog", sticky=True)
    with pytest.raises(errors.SyncFailed):
        s.flush()
    until(lambda: s.replication().state == "failed", 20_000)
    with pytest.raises(errors.DurabilityError):
        s.close()


@pytest.mark.parametrize("seed", range(3))
def test_frames_of_any_size(tmp_path: Path, seed: int) -> None:
    """Of records that are larger than what a slave reads at once, too, and of the rest of a file behind them."""
    sizes = {"segment_size_bytes": 4 << 20, "message_size_max_bytes": 3 << 20}
    r = random.Random(seed)
    with master(tmp_path / "m", **sizes) as m:
        while m.max_log_offset < 13 << 20:
            m.put("T", r.randbytes(r.choice((10, 1000, 20_000, 700_000, 2_500_000))))
        assert m.wait_dispatched(30)
        end = m.max_log_offset
        log = b"".join(p.read_bytes() for p in sorted((tmp_path / "m" / "commitlog").iterdir()) if p.name.isdigit())[:end]
    with Listening() as listening, slave(tmp_path / "s", listening.address, **sizes) as s, listening.accept() as peer:
        assert peer.read_report() == 0
        at, several = 0, b""
        while at < end:
            n = min(r.choice((1, 7, 12, 900, 32768, 400_000, 3_000_000)), end - at)
            several += struct.pack(">qi", at, n) + log[at:at + n]
            at += n
            cut = r.randrange(len(several) + 1)         # a head may come in two pieces as well
            peer.socket.sendall(several[:cut])
            several = several[cut:]
        peer.socket.sendall(several)
        until(lambda: s.max_log_offset == end, 20_000)
        assert s.wait_dispatched(30)
        files = sorted(p for p in (tmp_path / "s" / "commitlog").iterdir() if p.name.isdigit())
        assert b"".join(p.read_bytes() for p in files)[:end] == log


@pytest.mark.parametrize("made", ["by a master without a message", "whose first file was made and no more"])
def test_an_empty_log_begins_where_the_master_says(tmp_path: Path, made: str) -> None:
    with master(tmp_path / "m") as m:
        fill(m, 300)
        assert m.max_log_offset > 2 * SIZE
        if made.startswith("by"):
            MessageStore.open(tmp_path / "s", **SMALL).close()
            log = tmp_path / "s" / "commitlog"
            log.mkdir(exist_ok=True)
            (log / f"{0:020d}").write_bytes(bytes(SIZE))
        else:
            log = tmp_path / "s" / "commitlog"
            log.mkdir(parents=True)
            (log / f"{SIZE:020d}").write_bytes(bytes(SIZE))
        with slave(tmp_path / "s", m) as s:
            caught_up(s, m)
            assert s.min_log_offset == m.max_log_offset - m.max_log_offset % SIZE
            same_log(m, s)


def test_a_connection_that_ends_behind_the_first_head(tmp_path: Path) -> None:
    """The master may have cleaned that file by the time the slave comes back."""
    with master(tmp_path / "source") as m:
        fill(m, 300)
        source = log_of(tmp_path / "source", 0, m.max_log_offset)
    with Listening() as listening, slave(tmp_path / "s", listening.address) as s:
        with listening.accept() as peer:
            assert peer.read_report() == 0
            peer.frame(SIZE, size=100)
        with listening.accept() as peer:
            assert peer.read_report() == 0
            peer.frame(2 * SIZE, source[2 * SIZE:2 * SIZE + 20_000])
            until(lambda: s.max_log_offset > 2 * SIZE + 10_000, 20_000)
            assert s.min_log_offset == 2 * SIZE


def test_a_child_of_fork_holds_no_socket(tmp_path: Path) -> None:
    """Whenever it comes: while connections come and go a slave sees that its master has closed."""
    from tests.forks import fork
    from tests.replication.pairs import connected
    for _ in range(4):
        with master(tmp_path / "m") as m, connected(m) as peer:
            peer.report(0)
            child = fork()
            if child == 0:
                os.read(os.eventfd(0), 8)       # until it is killed
                os._exit(0)
            try:
                m.close()
                assert peer.closed_by_peer()
            finally:
                os.kill(child, 9)
                os.waitpid(child, 0)

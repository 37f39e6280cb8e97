"""Slaves that are slow, or behind what cleaning has deleted: neither puts, nor the pool, nor cleaning wait for them."""
from pathlib import Path

import pytest

from rmq_store.log.flush._uring import uring_probe
from tests.crash.scenario import RING_HERE
from tests.page_cache import cached
from tests.replication.pairs import SMALL, caught_up, connected, fill, joined, log_of, master, slave
from tests.soon import until

LARGE = {"segment_size_bytes": 1 << 20, "message_size_max_bytes": 300_000}


@pytest.mark.parametrize("how", [{}, {"write_path": "pool", "pool_window_size_bytes": 1 << 20}])
def test_a_slave_that_does_not_read(tmp_path: Path, how: dict, caplog: pytest.LogCaptureFixture) -> None:
    """More is put than pool and sockets hold; then cleaning deletes what it needs, and its connection ends."""
    with master(tmp_path / "m", **LARGE, **how) as m, connected(m) as peer:
        m.put("T", b"first")
        m.flush()                       # out of the pool
        peer.report(1)
        until(lambda: sum(r.sent_bytes for r in m.replicas()) > 0, 20_000)
        for i in range(80):
            m.put("T", bytes([i]) * 250_000)
        m.flush()
        end = m.max_log_offset
        (replica,) = m.replicas()
        assert replica.lag_bytes == end - 1 > 16 << 20
        assert replica.sent_bytes < end - (4 << 20)
        m.clean(0)
        until(lambda: m.min_log_offset > end - (4 << 20), 20_000)
        maps = Path("/proc/self/maps").read_text()
        assert [line for line in maps.splitlines() if str(tmp_path) in line and "deleted" in line] == []
        got = 1
        with pytest.raises((EOFError, ConnectionError)):
            while True:
                offset, data = peer.read_frame()
                assert offset == got
                got += len(data)
        assert got < end
        until(lambda: "cleaning has deleted that" in caplog.text, 20_000)


@pytest.mark.skipif(not RING_HERE, reason="the kernel refuses a ring")
def test_a_slave_that_keeps_up_is_served_from_the_pool(tmp_path: Path) -> None:
    """What went around the page cache is not read back from the device."""
    if uring_probe(str(tmp_path))["direct"] != 0:
        pytest.skip("no direct I/O")
    sizes = {"segment_size_bytes": 64 << 20, "pool_window_size_bytes": 16 << 20}
    with master(tmp_path / "m", write_path="pool", flush_backend="io_uring", **sizes) as m, \
            slave(tmp_path / "s", m, segment_size_bytes=64 << 20) as s:
        joined(m)
        fill(m, 1000, size=9000)
        m.flush()
        caught_up(s, m)
        end, name = m.max_log_offset, f"{0:020d}"
        assert cached(tmp_path / "m" / "commitlog" / name) == 0
        logs = [(tmp_path / side / "commitlog" / name).read_bytes()[:end] for side in "ms"]
        assert logs[0] == logs[1]


def test_a_slave_behind_the_beginning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It keeps what it has. Its master says what to do."""
    with master(tmp_path / "m") as m:
        with slave(tmp_path / "s", m) as s:
            joined(m)
            fill(m, 20)
            until(lambda: s.max_log_offset == m.max_log_offset, 20_000)
            end = s.max_log_offset
        before = log_of(tmp_path / "s", 0, end)
        fill(m, 400, 1)
        m.flush()
        m.clean(0)
        assert m.min_log_offset >= 2 * SMALL["segment_size_bytes"]
        with slave(tmp_path / "s", m) as s:
            until(lambda: f"wants the log from offset {max(end - 65536, 1)} on" in caplog.text, 20_000)
            until(lambda: "make the slave anew from a backup" in caplog.text, 20_000)
            assert s.max_log_offset == end
            assert s.replication().state != "follows"
        assert log_of(tmp_path / "s", 0, end) == before


def test_a_master_that_closes_sends_what_it_has(tmp_path: Path) -> None:
    """Whoever ends a master to promote its slave misses no message, also of those that no put waited for."""
    with master(tmp_path / "m", ha_flow_control_enabled=True, ha_transfer_rate_max_bytes=1 << 20) as m, \
            slave(tmp_path / "s", m) as s:
        joined(m)
        for _ in range(30):
            m.put("T", bytes(9000))
        end = m.max_log_offset
        m.close()
        until(lambda: s.max_log_offset == end, 20_000)


def test_a_slave_that_takes_nothing_holds_no_close(tmp_path: Path) -> None:
    with master(tmp_path / "m", close_timeout_ms=3_600_000) as m, connected(m) as peer, connected(m):
        m.put("T", bytes(9000))
        peer.report(1)
        joined(m)
        m.close()
        assert peer.closed_by_peer()

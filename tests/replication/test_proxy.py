"""A slave of this library behind a bad wire: whatever the wire does, the slave's log is the beginning of its master's, and in
the end all of it."""
from pathlib import Path

import pytest

from tests.replication.pairs import caught_up, fill, log_of, master, same_log, same_queues, slave
from tests.replication.proxy import Wire
from tests.soon import until


def run(path: Path, seed: int, messages: int) -> tuple[int, int]:
    beats = {"ha_send_heartbeat_interval_ms": 10, "ha_housekeeping_interval_ms": 1000}
    with master(path / "m", **beats) as m, Wire(m.replication().address, seed) as wire:
        fill(m, 1, seed)
        with slave(path / "s", wire.address, **beats) as s:
            until(lambda: s.max_log_offset > 0, 60_000)
            for i in range(4):
                fill(m, messages // 4, seed + i)
                end = s.max_log_offset
                assert log_of(path / "s", 0, end) == log_of(path / "m", 0, end)
            until(lambda: wire.cuts + wire.lies > 0, 60_000)
            wire.mend()
            caught_up(s, m)
            same_log(m, s)
            same_queues(m, s)
            until(lambda: [r.offset for r in m.replicas() if r.offset >= 0][-1:] == [m.max_log_offset], 20_000)
        return wire.cuts, wire.lies


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))])
def test_a_bad_wire(tmp_path: Path, seed: int) -> None:
    cuts, lies = run(tmp_path, seed, 200 if seed == 1 else 1500)
    assert cuts + lies > 0

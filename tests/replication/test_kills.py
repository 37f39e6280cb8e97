"""Either side is killed at random moments and comes back, and a slave is promoted: what was acknowledged is there."""
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.replication.pairs import SMALL, caught_up, log_of, master, same_log, same_queues, slave
from tests.soon import until

ROOT = Path(__file__).parents[2]


class Other:
    """A process of killed.py."""

    def __init__(self, role: str, path: Path, address: str, seed: int) -> None:
        command = [sys.executable, "-m", "tests.replication.killed", role, str(path), address, str(seed)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> list[str]:
        """What it had printed and nobody has read, whole lines."""
        assert self.process.stdout is not None
        self.process.kill()
        rest = self.process.stdout.read()
        self.process.communicate()
        return [line for line in rest.split("\n")[:-1] if line]


def bodies(store: MessageStore) -> set[str]:
    return {bytes(m.body).split(b"\0")[0].decode() for m in store.scan("T")}


@pytest.mark.parametrize("cycles", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_promoted_slave_has_what_was_acknowledged(tmp_path: Path, cycles: int) -> None:
    """SYNC_MASTER: nothing that a put said PUT_OK for is missing from a slave, wherever the master is killed."""
    r = random.Random(cycles)
    for cycle in range(cycles):
        base = tmp_path / str(cycle)
        leader = Other("sync_master", base / "m", "127.0.0.1:0", cycle)
        with slave(base / "s", leader.line()) as s:
            until(lambda s=s: s.replication().state in ("compares", "follows"), 20_000)
            leader.go()
            told = [leader.line() for _ in range(r.randrange(1, 120))]
            told += leader.kill()
            until(lambda s=s: s.replication().state == "waits", 20_000)
        with master(base / "s") as promoted:
            assert set(told) <= bodies(promoted)
            promoted.put("T", b"goes on")


@pytest.mark.slow
@pytest.mark.parametrize("cycles", [20])
def test_killed_slave_comes_back(tmp_path: Path, cycles: int) -> None:
    r = random.Random(cycles)
    with master(tmp_path / "m") as m:
        m.put("T", b"first")
        for cycle in range(cycles):
            follower = Other("slave", tmp_path / "s", m.replication().address, cycle)
            assert follower.line() == "follows"
            if cycle == 0:      # one that was killed before it had anything begins with the master's last file
                until(lambda: [replica.offset for replica in m.replicas()] == [m.max_log_offset], 20_000)
            for i in range(r.randrange(20, 200)):
                m.put("T", bytes(r.randrange(900)), queue_id=i % 3, keys=str(i), wait=False)
            follower.kill()
        with slave(tmp_path / "s", m) as s:
            caught_up(s, m)
            same_log(m, s)
            same_queues(m, s)


@pytest.mark.slow
def test_killed_master_comes_back(tmp_path: Path) -> None:
    """A killed process loses no byte that was committed, so the slave continues where it is."""
    r = random.Random(7)
    with Other("master", tmp_path / "m", "127.0.0.1:0", 0).process as process:
        address = process.stdout.readline().strip()
        process.kill()
    with slave(tmp_path / "s", address) as s:
        for cycle in range(30):
            leader = Other("master", tmp_path / "m", address, cycle)
            assert leader.line() == address
            leader.go()
            for _ in range(r.randrange(1, 200)):
                leader.line()
            leader.kill()
            with MessageStore.open(tmp_path / "m", **SMALL) as m:       # recovers
                end = m.max_log_offset
            assert s.max_log_offset <= end
        with master(tmp_path / "m", ha_listen=address) as m:
            caught_up(s, m)
            begin = s.min_log_offset
            assert log_of(tmp_path / "s", begin, end) == log_of(tmp_path / "m", begin, end)

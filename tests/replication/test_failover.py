"""A master is killed with puts in flight, and its slave promoted (failover.py): a few cycles here, 10,000 with `make
test-failover`."""
from pathlib import Path

import pytest

from tests.replication import failover


@pytest.mark.parametrize("mode", ["sync_master", "master"])
@pytest.mark.parametrize("cycles", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_missing(memory_disk: Path, mode: str, cycles: int, capsys: pytest.CaptureFixture[str]) -> None:
    """sync_master: nothing. master: what is missing is the end of the log, which promote names. Both: order, and offsets of
    groups."""
    assert failover.campaign(memory_disk / "pair", cycles, cycles, mode) == 0, capsys.readouterr().out


def test_the_judge_finds_what_is_missing(memory_disk: Path) -> None:
    """It is told of a put that never was, of a message at another place, and of an offset that nobody committed."""
    base = memory_disk / "pair"
    base.mkdir()
    cycle = failover.Cycle(base, "sync_master", 3, set())
    judge = cycle._judge

    def planted(end: int) -> list[str]:
        cycle.puts.append((1, 10_000, end))
        cycle.puts.append((cycle.puts[0][0], cycle.puts[0][1], cycle.puts[0][2] + 1)) if cycle.puts[0][1] < 10_000 else None
        return judge(end)

    cycle._judge = planted
    wrong = cycle.run()
    assert any("acknowledged and missing, queue 1" in what for what in wrong)
    assert len(wrong) == 1 or any("and is not there" in what for what in wrong)

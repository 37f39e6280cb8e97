"""Every driver of the benchmarks still runs, and says what the verdicts are taken from. Measures nothing."""
import argparse
from pathlib import Path

import pytest

from bench import compare_rocketmq as compare


@pytest.mark.slow
@pytest.mark.parametrize("case", [*compare.PAIRS, *compare.ALONE])
def test_driver_runs(case: str, tmp_path: Path) -> None:
    command = compare.PAIRS[case][0] if case in compare.PAIRS else compare.ALONE[case]
    lines = compare.ours(argparse.Namespace(dir=tmp_path, smoke=True), command)
    figures = compare.medians([compare.flat(case, lines)])
    assert figures and all(value >= 0 for value in figures.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_fixed_rate_and_asyncio(tmp_path: Path) -> None:
    args = argparse.Namespace(dir=tmp_path, smoke=True)
    (put,) = compare.ours(args, ["put", "--rate", "20000", "--write-path", "mmap"])
    assert put["p50_us"] > 0
    (tasks,) = compare.ours(args, ["sync", "--mode", "asyncio"])
    assert tasks["msgs_per_s"] > 0

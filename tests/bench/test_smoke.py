"""Every driver of the benchmarks still runs, and says what the verdicts are taken from. Measures nothing."""
import argparse
from pathlib import Path

import pytest

from bench import compare_rocketmq as compare
from rmq_store.bench.figures import medians


@pytest.mark.slow
@pytest.mark.parametrize("case", [*compare.PAIRS, *compare.ALONE])
def test_driver_runs(case: str, tmp_path: Path) -> None:
    lines = compare.ours(argparse.Namespace(dir=tmp_path, smoke=True), case)
    figures = medians([compare.flat(case, lines)])
    assert figures and all(value >= 0 for value in figures.values())
    assert list(tmp_path.iterdir()) == []

"""Every driver of the benchmarks still runs, and says what the verdicts are taken from. Measures nothing."""
import argparse
import json
from pathlib import Path

import pytest

from bench import compare_rocketmq as compare
from bench.load import before, many_queues, small_stores, views
from rmq_store.bench.figures import medians


@pytest.mark.slow
@pytest.mark.parametrize("case", [*compare.PAIRS, *compare.ALONE])
def test_driver_runs(case: str, tmp_path: Path) -> None:
    try:
        lines = compare.ours(argparse.Namespace(dir=tmp_path, quick=True), case)
    except LookupError as missing:
        pytest.skip(str(missing))
    figures = medians([compare.flat(case, lines)])
    assert figures and all(value >= 0 for value in figures.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_this_checkout_beside_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before.main(["--quick", "--dir", str(tmp_path), "--only", "put_100,put_async_512,get_100,get_bodies_100"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["case"] for row in rows] == ["put_100", "put_async_512", "get_100", "get_bodies_100"]
    assert all(row["ratio"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_a_message_costs_a_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    views.main(["--quick", "--dir", str(tmp_path), "--out", str(tmp_path / "out.json")])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["body"] for row in rows] == list(views.BODIES)
    assert rows == json.loads((tmp_path / "out.json").read_text())["rows"]
    assert all(row["ns_a_message"].keys() == views.WAYS.keys() and min(row["ns_a_message"].values()) > 0 for row in rows)


@pytest.mark.slow
def test_many_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many_queues.main(["--quick", "--dir", str(tmp_path)])
    row = json.loads(capsys.readouterr().out)
    assert all(row[name] > 0 for name in ("dispatch_us", "close_s", "open_s", "stat_s", "crash_open_s", "rss_mib"))
    assert list(tmp_path.iterdir()) == []


def test_small_stores_of_tests(tmp_path, capsys):
    small_stores.main(["--quick", "--dir", str(tmp_path), "--out", str(tmp_path / "out.json")])
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(row["write_path"], row["flush_mode"]) for row in rows] == small_stores.WAYS
    assert all(0 < row["disk_bytes"] <= 10 << 20 for row in rows)

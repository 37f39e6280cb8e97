"""Every driver of the benchmarks still runs, and says what the verdicts are taken from. Measures nothing."""
import importlib
import json
from pathlib import Path

import pytest

from bench.load import before, first_touch, light_queues, many_queues, small_stores, views

HELPERS = ("__init__", "brokers", "driver", "others", "replica", "subjects")
DRIVERS = sorted(p.stem for p in Path(before.__file__).parent.glob("*.py") if p.stem not in HELPERS)
# These run below, in test_bad_day_drivers.py, test_report.py and tests/cleaning/test_soak.py; and one needs valgrind.
ELSEWHERE = ("asyncio_puts", "before", "cleaning", "fence", "first_touch", "light_queues", "many_queues", "put_lock",
             "slow_disk", "small_stores", "soak", "statistics_cost", "uring_steps", "views")


@pytest.mark.slow
@pytest.mark.parametrize("driver", [name for name in DRIVERS if name not in ELSEWHERE])
def test_driver_runs(driver: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    importlib.import_module(f"bench.load.{driver}").main(["--quick", "--dir", str(tmp_path / "d"), "--out", str(out)])
    told = json.loads(out.read_text())
    assert all(run for sides in told["runs"].values() for runs in sides.values() for run in runs) and told["runs"]
    assert told["missing"] == told["failed"] == {} and list((tmp_path / "d").iterdir()) == []


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
def test_light_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    light_queues.main(["--quick", "--dir", str(tmp_path)])
    row = json.loads(capsys.readouterr().out)
    assert row["opened"]["descriptors"] <= 128 and row["opened"]["descriptors_after_gets"] <= 128
    assert all(row[name] > 0 for name in ("stat_s", "disk_bytes")) and row["made"]["bytes"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_many_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many_queues.main(["--quick", "--dir", str(tmp_path)])
    row = json.loads(capsys.readouterr().out)
    assert all(row[name] > 0 for name in ("dispatch_us", "close_s", "open_s", "stat_s", "crash_open_s", "rss_mib"))
    assert list(tmp_path.iterdir()) == []


def test_first_touch(tmp_path, capsys):
    first_touch.main(["--quick", "--dir", str(tmp_path / "d"), "--out", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())["runs"]["first_touch"]
    assert all(found[s][0][f"{use}_us"] > 0 for s in ("memory", "page cache") for use in ("first", "again"))
    assert list((tmp_path / "d").iterdir()) == []


def test_small_stores_of_tests(tmp_path, capsys):
    small_stores.main(["--quick", "--dir", str(tmp_path), "--out", str(tmp_path / "out.json")])
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(row["write_path"], row["flush_mode"]) for row in rows] == small_stores.WAYS
    assert all(0 < row["disk_bytes"] <= 10 << 20 for row in rows)

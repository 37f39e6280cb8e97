"""The parts of the benchmarks that turn samples into verdicts: a wrong one would praise or blame us for nothing."""
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench import cases, goals, suite, targets
from bench.figures.steps import STEPS
from bench.load import asyncio_puts, put_lock, uring_steps
from bench.micro import gate
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import report
from rmq_store.bench.case import OURS, WORKLOADS
from rmq_store.bench.figures import medians
from rmq_store.bench.peers import PEERS


def test_medians_leave_out_what_is_no_number() -> None:
    assert medians([{"a": 1, "b": "x", "c": 3}, {"a": 5, "b": "y"}, {"a": 2, "b": "z", "c": 1}]) == {"a": 2}


def test_targets_name_steps_and_cases_that_exist() -> None:
    steps = {step.name for step in STEPS}
    known = {f"{group}/{name}" for group, several in cases.CASES.items() for name in several}

    class Asked(dict[str, dict[str, float]]):
        def __missing__(self, key: str) -> dict[str, float]:
            step, _, case = key.partition("/")
            assert step in steps and case and (step not in cases.CASES or key in known), key
            return _Everything()

    assert all(o.met is not None for o in targets.judge(Asked(), Asked()))


def test_verdicts_come_from_the_document_of_a_run() -> None:
    steps = {"beside": {"runs": {"put_100": {OURS: [{"sustained_per_s": n} for n in (5, 6, 9)],
                                             "rocketmq": [{"sustained_per_s": 1}]}}},
             "idle": {"runs": {"idle_log": {"pool": [{"beyond_pool_mib": 40.0}]}}}}
    verdicts = {o.text: (o.value, o.words()) for o in targets.judge(*targets.found(steps))}
    assert verdicts["put 100 B sustained, all flushed and dispatched"] == (6, "PASS")
    assert verdicts[f"{targets.IDLE} (1 GiB in it, pool)"] == (40, "short of")
    assert verdicts["put 100 B at the same rate, p99.9"] == (None, "not measured")


def test_verdicts() -> None:
    put = {"median_ns": 100.0, "sustained_per_s": 6e6, "p999_us": 3.0, "max_us": 1000.0, "msgs": 1000, "producer_faults": 0}
    ours = {"beside/put_100": put, "at_rate/put_100": {"p999_us": 3.0}}
    by_text = {o.text: o for o in targets.judge(ours, {"beside/put_100": {"sustained_per_s": 1e6},
                                                       "at_rate/put_100": {"p999_us": 10.0}})}
    assert by_text["put 100 B, no properties: median of a call"].words() == "PASS"
    assert by_text["put 100 B sustained, all flushed and dispatched"].value == 6
    assert by_text["put 100 B at the same rate, p99.9"].words() == "short of"
    assert by_text["put 100 B at the same rate, worst pause"].words() == "not measured"
    assert "short of" in targets.table(list(by_text.values()))


def test_goals_name_cases_that_exist_and_figures_that_runs_have() -> None:
    everything = {case: _Everything() for case in (*goals.CASES, goals.AT_RATE)}
    assert all(o.met is not None for o in targets.judge(everything, {}, goals.GOALS))
    assert all(case.complete().subject in (OURS, *PEERS) for case in goals.CASES.values())


def test_the_best_of_several_and_the_most_of_all() -> None:
    f = {"page_mmap_msync": {"p50_us": 120.0}, "page_pool_fdatasync": {"p50_us": 80.0}, "page_fio": {"p50_us": 75.0},
         "one": {"peak_beyond_pool_mib": 70.0, "pool_mib": 0.0},
         "sustained": {"cpu_commit_secs": 1, "cpu_ring_secs": 2, "flushed_secs": 10}}
    by_text = {o.text: o for o in targets.judge(f, {}, goals.GOALS)}
    best = by_text["synchronous, 4 KiB: best back end beside fio write+fdatasync, p50"]
    assert (best.ours, best.java, best.words()) == (80, 75, "PASS")
    memory = by_text["memory beyond the pool, the most of all runs"]
    core = by_text["sustained: commit and flush together, of one core"]
    assert (memory.value, memory.words(), core.value, core.words()) == (70, "short of", 30, "short of")
    assert by_text["put_many, 64 KiB a write: bandwidth beside fio's"].words() == "not measured"
    assert targets.judge({}, {}, goals.GOALS)[0].met is None


def test_the_gate_finds_what_became_dearer() -> None:
    def document(put: float, yardstick: float) -> dict[str, Any]:
        return {"benchmarks": [{"name": n, "stats": {"min": m}, "extra_info": {"yardstick_s": yardstick}} for n, m in (
            ("test_put", put), ("test_get", 2 * yardstick), ("test_new", yardstick / 2),
            ("test_put_async_and_wait[pool]", 9.0))]}

    now = gate.ratios(document(1.0, 2.0), document(1.7, 3.0))
    assert now == {"test_put": 0.5, "test_get": 2.0, "test_new": 0.5}
    assert gate.findings(now, {"test_put": 0.49, "test_get": 1.0, "test_gone": 1.0}) == [
        "test_get: 2.00 x what it was, at most 1.4 x", "test_new: has no committed ratio, run this with --update"]


def test_results_are_kept_with_merged_histograms() -> None:
    runs = [{"msgs": n, "histograms": {"call": Histogram([1000 * n]).to_dict()}} for n in (1, 2)]
    (kept,) = suite.compact([{"case": {}, "name": "x", "dir": "d", "runs": runs}])
    assert kept["runs"] == [{"msgs": 1}, {"msgs": 2}]
    counts = [[int(part) for part in pair.split(":")] for pair in kept["histograms"]["call"]["counts"].split()]
    assert Histogram.from_dict({**kept["histograms"]["call"], "counts": counts}).count == 2


def test_the_full_matrix_is_complete_and_makes_sense() -> None:
    crossed = [case.complete() for case in suite.matrix()]
    assert len({str(case) for case in crossed}) == len(crossed)
    assert {c.workload for c in (*crossed, *suite.OTHERS, *goals.CASES.values())} == set(WORKLOADS)


class _Everything(dict[str, float]):
    def __missing__(self, key: str) -> float:
        return 1.0

    def __contains__(self, key: object) -> bool:
        return True


def _result(name: str, place: str, **figures: float) -> dict[str, object]:
    return {"name": name, "dir": place, "runs": [figures], "case": {}}


def test_disks_are_shown_side_by_side() -> None:
    results = [{**_result("put_sync x", place, msgs_per_s=n), "case": {"workload": "put_sync", "subject": OURS}}
               for place, n in (("ext4", 1000.0), ("xfs", 2000.0))]
    page = report.html("t", {}, results)
    assert "<td class=\"name\">put_sync x</td><td class=\"\">1,000</td><td class=\"\">2,000</td>" in page
    assert "side by side" not in report.html("t", {}, results[:1])


@pytest.mark.parametrize("driver", [uring_steps, put_lock, asyncio_puts], ids=lambda d: d.__name__)
@pytest.mark.slow
def test_a_driver_runs_and_keeps_what_it_found(driver: ModuleType, tmp_path: Path) -> None:
    driver.main(["--quick", "--dir", str(tmp_path), "--out", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["machine"] and len(found["rows"]) >= 12
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]

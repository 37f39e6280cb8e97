"""Every workload and every peer that is here runs and says what tables and verdicts are made from. Measures nothing."""
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import figures, runner, worker
from rmq_store.bench.case import FILE_STATES, WORKLOADS, Case
from rmq_store.bench.disks import Place
from rmq_store.bench.ours import warmed
from rmq_store.bench.puts import run as run_puts
from rmq_store.bench.reads import RECOVERIES
from rmq_store.bench.runner import run_all, run_case

SMALL = {"seconds": 0.02, "cap_mib": 4, "segment_mib": 16}
OPTIONS = {"index_slots": 1000, "index_entries_max": 50_000}


def small(workload: str, **more: object) -> Case:
    return Case(workload, **{**SMALL, "options": OPTIONS, **more}).complete()     # type: ignore[arg-type]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workload_runs(workload: str, tmp_path: Path) -> None:
    more = {"window": 16} if "async" in workload else {"producers": 4} if "sync_threads" in workload else {}
    run = worker.run(small(workload, **more), tmp_path)
    if workload == "recover":
        assert all(run[f"{kind}_open_ms"] > 0 for kind in RECOVERIES)
        assert run["log_bytes"] >= 1 << 20 and run["rewrite_ms"] > 0
    else:
        assert run["msgs_per_s"] > 0
    if WORKLOADS[workload].flush_mode == "sync":
        assert 0 < run["flushes"] <= run["msgs"]
    for state in run.get("histograms", {}).values():
        assert Histogram.from_dict(state).count > 0


def test_a_run_is_watched_and_leaves_nothing(tmp_path: Path) -> None:
    run = run_case(small("put_async", write_path="pool"), tmp_path)
    assert run["msgs"] > 0 and run["peak_beyond_pool_mib"] < 1000 and run["peak_dirty_mib"] >= 0 and run["cpu_ns_per_msg"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_dies_is_an_error_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert "ended with 1" in run_case(small("put_async"), tmp_path)["error"]
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_hangs_is_ended_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PATIENCE_S", 0.0)
    monkeypatch.setattr(runner, "PATIENCE", 0.001)
    run = run_case(small("put_async", seconds=600.0, cap_mib=8 << 10), tmp_path)
    assert run == {"error": "not at its end after 1 s, and ended"}
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    def one(case: Case, directory: Path, cgroup: str) -> dict[str, object]:
        if case.body == 2:
            raise OSError(28, "No space left on device")
        return {"msgs": case.body}

    cases = [(small("put_async", body=body), Place(tmp_path)) for body in (1, 2, 3)]
    first, second, third = run_all(cases, 2, lambda text: None, one)
    assert [r["msgs"] for r in (*first["runs"], *third["runs"])] == [1, 1, 3, 3]
    assert second["runs"] == [] and "No space" in second["error"]


@pytest.mark.parametrize("state", FILE_STATES)
def test_file_states_are_what_they_say(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file under the measured puts is reserved, or written, when they begin: the open reserves one that is all hole."""
    seen = []

    def look(store: MessageStore, case: Case) -> int:
        file = tmp_path / "slow" / "commitlog" / f"{0:020d}"
        size = warmed(store, case)
        seen.append(file.stat().st_blocks * 512 / file.stat().st_size)
        return size

    monkeypatch.setattr("rmq_store.bench.puts.warmed", look)
    assert run_puts(small("put_sync", file_state=state), tmp_path)["msgs"] > 0
    assert seen[0] > 0.5


@pytest.mark.parametrize("peer", ["append", "sqlite", "lmdb", "rocksdb", "fio"])
def test_peer_runs_or_says_why_not(peer: str, tmp_path: Path) -> None:
    for workload, more in (("put_async", {}), ("put_sync", {}), ("put_many", {"flush_mode": "sync", "batch": 8})):
        base = tmp_path / workload
        base.mkdir()
        try:
            run = worker.run(replace(small(workload, **more), subject=peer, options={}), base)
        except worker.Skip as why:
            pytest.skip(str(why))
        assert run["mib_per_s"] > 0 and run["max_us"] >= run["p50_us"] > 0
    with pytest.raises(worker.Skip, match="knows put_async"):
        worker.run(replace(small("get"), subject=peer), tmp_path)


def test_repetitions_alternate_and_a_skipped_case_is_not_tried_again(tmp_path: Path) -> None:
    cases = [(Case(w), Place(tmp_path, "here")) for w in ("put_sync", "get", "scan")]
    order: list[str] = []

    def one(case: Case, path: Path, cgroup: str) -> dict[str, object]:
        order.append(case.workload)
        return {"skipped": "no"} if case.workload == "get" else {"msgs_per_s": len(order)}

    results = run_all(cases, 3, lambda text: None, one)
    assert order == ["put_sync", "get", "scan", "put_sync", "scan", "put_sync", "scan"]
    assert [figures.medians(r["runs"]).get("msgs_per_s") for r in results] == [4, None, 5]
    lines = figures.table_lines(results)
    assert lines[-1] == f"skipped: {cases[1][0].name()} in here: no"


def test_time_that_is_up_ends_repetitions_then_everything(tmp_path: Path) -> None:
    cases = [(Case(w), Place(tmp_path)) for w in ("put_sync", "get")]

    def one(case: Case, path: Path, cgroup: str) -> dict[str, object]:
        return {"msgs_per_s": 1}

    up = time.monotonic() - 1
    results = run_all(cases, 3, lambda text: None, one, up)
    assert [len(r["runs"]) for r in results] == [1, 1]
    results = run_all(cases, 3, lambda text: None, one, up, up)
    assert [(r["runs"], r["skipped"]) for r in results] == [([], "no time left")] * 2


def test_hgrm_is_what_hdrhistogram_plotters_read() -> None:
    lines = figures.hgrm(Histogram([1000] * 99 + [9000])).splitlines()
    assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    rows = [line.split() for line in lines[2:] if not line.startswith("#")]
    assert [(float(v), float(p), int(n)) for v, p, n, _ in rows] == [(pytest.approx(1.0, rel=.02), .99, 99), (9.0, 1.0, 100)]
    assert rows[-1][3] == "inf"
    assert "Total count    =          100" in lines[-2]


def test_encoded_histograms_decode_to_the_same(tmp_path: Path) -> None:
    hdrh = pytest.importorskip("hdrh.histogram", reason="hdrhistogram is not installed")
    values = [1000 * i for i in range(1, 500)]
    theirs = hdrh.HdrHistogram.decode(figures.encoded(Histogram(values)))
    assert theirs.get_total_count() == len(values)
    assert theirs.get_value_at_percentile(50) == pytest.approx(250_000, rel=0.02)

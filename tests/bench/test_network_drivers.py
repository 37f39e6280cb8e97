"""The drivers of brokers and of replication run, and a repetition that others disturbed is made again. Measures nothing."""
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from bench import targets
from bench.figures import served
from bench.figures.document import Figures
from bench.load import broker, brokers, clients, embedded, fairness, hostile, network, others, replication
from bench.load.subjects import BARE, PAIR, SLEEPS
from rmq_store.bench.case import OURS


def _runs(driver: Any, tmp_path: Path, *more: str) -> dict[str, Any]:
    driver.main(["--quick", "--dir", str(tmp_path / "here"), "--out", str(tmp_path / "out.json"), *more])
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["missing"] == told["failed"] == {} and not list((tmp_path / "here").iterdir())
    runs: dict[str, Any] = told["runs"]
    return runs


def test_a_broker_answers_every_load(tmp_path: Path) -> None:
    runs = _runs(broker, tmp_path, "--subjects", f"{OURS},{BARE}")
    assert runs.keys() == {"rest", *(f"{what}_{connections}x{window}" for what, connections, window in broker.LOADS)}
    (rest,) = runs.pop("rest")[OURS]
    assert rest["ready_ms"] > 0 and rest["rss_mib"] > 0
    for case, (run,) in ((case, sides[subject]) for case, sides in runs.items() for subject in (OURS, BARE)):
        assert run["per_s"] > 0 and run["cpu_us"] > 0 and run["generator_cpu_us"] > 0, case
        assert not case.startswith("send") or run["bad"] == 0, case
        assert not case.startswith("pull") or run["messages_per_s"] > run["per_s"], case
        assert not case.startswith("pull") or run["bytes"] == run["messages"] * broker.RECORD, case


def test_a_window_and_a_catch_up(tmp_path: Path) -> None:
    runs = _runs(replication, tmp_path, "--no-real", "--only", "window,catch_up")
    (window,) = runs["window"][OURS]
    assert runs["window"].keys() == {OURS, BARE, PAIR} and runs["window"][BARE][0]["per_s"] > 0
    (pair,) = runs["window"][PAIR]
    assert pair["per_s"] > 0 and 0 < pair["p50_us"] <= pair["p99_us"]
    assert pair["cpu_us"] * 1e3 > runs["window"][BARE][0]["producer_ns"]
    assert window["bad"] == 0 and window["per_s"] > 0 and window["master_cpu_s"] > 0 and window["slave_cpu_s"] > 0
    assert runs["catch_up"].keys() == {OURS, "bare", "bare, not stored"}
    assert all(run["mib_per_s"] > 0 for (run,) in runs["catch_up"].values())


@pytest.mark.slow
def test_a_master_and_its_slave(tmp_path: Path) -> None:
    runs = _runs(replication, tmp_path, "--no-real")
    assert runs.keys() == {"lag_20000", "put", "single", "catch_up_puts", "window", "catch_up"}
    (lag,), (single,) = (runs[case][OURS] for case in ("lag_20000", "single"))
    (alone,), (sleeping,) = (runs["lag_20000"][subject] for subject in (BARE, SLEEPS))
    (pair,) = runs["lag_20000"][PAIR]
    assert sleeping["messages"] == lag["messages"]
    assert 0 < pair["p50_us"] <= pair["p99_us"] and 0 < pair["per_s"] <= 20_000
    assert 0 < alone["put_p50_us"] <= alone["put_p99_us"]
    assert lag["messages"] > 0 and single["bad"] == 0 and single["ratio"] > 0
    assert runs["put"].keys() == {"nobody", "slave"}


def test_a_busy_python_thread_and_an_idle_broker(tmp_path: Path) -> None:
    runs = _runs(network, tmp_path)
    assert {"send_1x1", "send_1x1_busy", "send_16x16", "pull_1x1_busy"} <= runs.keys()
    assert all(run["per_s"] > 0 for sides in runs.values() for run in sides["native"])
    runs = _runs(embedded, tmp_path)
    assert runs.keys() == {"embedded_control", "embedded_idle", "embedded_holding"}
    assert all(run["ratio"] > 0 for sides in runs.values() for several in sides.values() for run in several)


def test_an_honest_client_beside_hostile_ones(tmp_path: Path) -> None:
    kinds = ["new_groups", "large_group", "held_tags"]
    runs = _runs(fairness, tmp_path, "--kinds", ",".join(kinds))
    assert list(runs) == kinds and set(kinds) < set(hostile.KINDS) == set(served.HOSTILE)
    for kind, sides in runs.items():
        (run,) = sides[OURS]
        assert run["bad"] == 0 and run["per_s"] > 0 and run["alone_per_s"] > 0 and run["sent_bytes"] > 0, kind
        assert 0 <= run["end_s"] < fairness.END_S, kind


@pytest.fixture
def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of the real brokers and clients say that they cannot run here."""
    place = tmp_path / "interop"
    place.mkdir()
    for name in ("broker", "replica", "clients"):
        script = place / f"{name}_with_rocketmq.sh"
        script.write_text("#!/bin/sh\necho 'SKIP: no java' >&2\nexit 77\n")
        script.chmod(0o755)
    for module in (brokers, replication, clients):
        monkeypatch.setattr(module, "INTEROP", place)


@pytest.mark.usefixtures("without_java")
def test_what_cannot_run_here_is_named_with_the_reason(tmp_path: Path) -> None:
    for driver, more, cases in (
            (broker, ["--subjects", "rocketmq-4.9"], {f"{what}_{c}x{w}/rocketmq-4.9" for what, c, w in broker.LOADS}),
            (clients, ["--releases", "rocketmq-5.x"],
             {f"rocketmq-5.x_{n}/{subject}" for n in clients.THREADS for subject in (OURS, "rocketmq-5.x")}),
            (replication, ["--only", "catch_up"], {"catch_up/rocketmq-4.9", "catch_up/rocketmq-5.x"})):
        driver.main(["--quick", "--dir", str(tmp_path / "here"), "--out", str(tmp_path / "out.json"), *more])
        told = json.loads((tmp_path / "out.json").read_text())
        assert told["missing"] == dict.fromkeys(cases, "SKIP: no java") and told["failed"] == {}
        assert not list((tmp_path / "here").iterdir())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A machine of one processor, of which others use so much during each measurement."""
    shares: list[float] = []

    class Told(others.Others):
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self._slices.append((1.0, shares.pop(0)))

    monkeypatch.setattr(others, "Others", Told)
    monkeypatch.setattr(others.os, "cpu_count", lambda: 1)
    return shares


def test_slices_say_what_others_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own work counts as own, also in the moment in which a child that has ended is nowhere in /proc."""
    busy, own, clock = iter([0.0, 1.0, 2.0, 2.9]), iter([0.0, 0.9, 0.4, 0.9]), iter([0.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr(others, "_busy", lambda: next(busy))
    monkeypatch.setattr(others, "_not_others", lambda root: next(own))
    ends = iter([False, False, True])
    found = others.slices(1, lambda seconds: next(ends), lambda: next(clock))
    assert [round(used, 3) for _, used in found] == [0.1, 1.0, 0.9]


def test_the_machine_is_watched_from_another_process() -> None:
    with others.Others() as watched:
        subprocess.check_call([sys.executable, "-S", "-c", "sum(range(3_000_000))"])
    assert watched._slices and all(seconds > 0 and used >= 0 for seconds, used in watched._slices)
    assert watched.figures().keys() == {"others_share", "others_worst"}


@pytest.mark.parametrize(("shares", "disturbed"), [([0.05], [None]), ([0.5, 0.05], [1, None]), ([0.5, 0.5, 0.0], [1, 1])])
def test_a_disturbed_repetition_is_made_again_once(machine: list[float], shares: list[float],
                                                   disturbed: list[int | None]) -> None:
    machine += shares
    used = shares[0]
    rows = others.repeated(lambda: [{"per_s": 7}])
    assert [row.get("disturbed") for row in rows] == disturbed and all(row["per_s"] == 7 for row in rows)
    assert rows[0]["others_share"] == rows[0]["others_worst"] == used


def test_what_is_shorter_than_a_slice_is_not_judged() -> None:
    found = others.Others()
    found._slices.append((others.SLICE_S / 2, 99.0))
    assert not found.disturbed


def test_what_a_process_and_the_kernel_use_is_no_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = {1: (0, 50.0), 2: (0, 1.0), 9: (2, 2.0), 20: (1, 4.0), 21: (20, 8.0), 22: (21, 16.0), 30: (1, 100.0)}
    monkeypatch.setattr(others, "_processes", lambda: processes)
    assert others._not_others(20) == 1 + 2 + 4 + 8 + 16


def test_a_median_leaves_disturbed_repetitions_out() -> None:
    runs = [{"per_s": 10.0, "disturbed": 1}, {"per_s": 30.0}]
    steps = {"step": {"runs": {"case": {OURS: runs, "alone": runs[:1]}}, "missing": {}, "failed": {}}}
    figures = Figures({"steps": steps, "absent": {}})
    assert figures.get("step/case", "per_s") == 30 and figures.get("step/case", "per_s", "alone") == 10
    assert len(figures.runs("step/case")) == 2
    ours, _ = targets.found(steps)
    assert ours["step/case"]["per_s"] == 30 and ours["step/case/alone"]["per_s"] == 10


def test_the_better_of_the_real_ones_is_the_yardstick() -> None:
    ours = {"broker/send_64x32": {"per_s": 600.0, "cpu_us": 1.0},
            "broker/send_64x32/rocketmq-4.9": {"per_s": 100.0, "cpu_us": 9.0},
            "broker/send_64x32/rocketmq-5.x": {"per_s": 50.0, "cpu_us": 6.0}}
    found = {o.text: (o.value, o.met) for o in targets.judge(ours, {}) if o.value is not None}
    assert found["broker: sends of 1 KiB, 64 connections, 32 each"] == (6.0, True)
    assert found["broker: processor time of a send"] == (round(1 / 6, 4), True)
    del ours["broker/send_64x32/rocketmq-4.9"], ours["broker/send_64x32/rocketmq-5.x"]
    assert all(o.met is None for o in targets.judge(ours, {}) if "beside" in o.text or "send_64" in o.text)

"""Groups of cases beside peers: what is run in which order, what a run at a rate counts, and what the file says."""
import argparse
import json
import shutil
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import cases, pairs, suite
from bench.load.driver import Found, numbers
from bench.micro import __main__ as micro
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import fio, java, peers, puts
from rmq_store.bench.case import OURS, Case
from rmq_store.bench.disks import Place
from rmq_store.bench.loops import Pace, loops
from rmq_store.errors import PoolExhausted

GROUP: cases.Group = {name: cases.same(Case("put_async", body=body), "rocketmq") for name, body in (("a", 1), ("b", 2))}


class Alone:
    """Of a machine that nobody else uses, whoever does."""

    disturbed = False

    def __enter__(self) -> "Alone":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def figures(self) -> dict[str, float]:
        return {"others_share": 0.0, "others_worst": 0.0}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pairs whose runs are told by a function; the jobs that were run."""
    args = argparse.Namespace(dir=tmp_path, out=tmp_path / "out.json", quick=False, reps=2, group="beside", only="")
    ran: list[Case] = []

    def made(one: Any) -> tuple[pairs.Pairs, list[Case]]:
        def run(case: Case, directory: Path, cgroup: str) -> dict[str, Any]:
            ran.append(case)
            return dict(one(case))

        monkeypatch.setattr(pairs, "run_case", run)
        monkeypatch.setattr(pairs, "settle", lambda: None)
        monkeypatch.setattr(pairs, "Others", Alone)
        return pairs.Pairs(args), ran

    return made


def test_sides_take_turns_and_what_cannot_run_is_not_tried_again(runner: Any, tmp_path: Path) -> None:
    def one(case: Case) -> dict[str, Any]:
        if case.subject == "rocketmq":
            return {"skipped": "no java"} if case.body == 1 else {"error": "broken"}
        return {"msgs_per_s": 7, "sustained_per_s": 5, "histograms": {"call": Histogram([1000, 9000]).to_dict()}}

    made, ran = runner(one)
    made.turns(GROUP, Place(tmp_path))
    assert [(c.body, c.subject) for c in ran] == [(1, OURS), (1, "rocketmq"), (2, OURS), (2, "rocketmq"), (1, OURS), (2, OURS)]
    made.found.write(made.args)
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["missing"] == {"a/rocketmq": "no java"} and told["failed"] == {"b/rocketmq": "broken"}
    run = told["runs"]["a"][OURS][1]
    assert run["burst_per_s"] == 7 and run["sustained_per_s"] == 5 and "msgs_per_s" not in run
    assert run["latency"][-1] == [0.75, 9.0]
    assert "FAILED: b/rocketmq: broken" in pairs.table(made.found)


def test_a_disturbed_repetition_is_made_once_more_and_both_are_kept(runner: Any, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    made, ran = runner(lambda case: {"msgs_per_s": 7, "sustained_per_s": 5})
    monkeypatch.setattr(pairs, "Others", type("Busy", (Alone,), {"disturbed": True}))
    made.turns({"a": {OURS: GROUP["a"][OURS]}}, Place(tmp_path))
    assert len(ran) == 4 and [run["disturbed"] for run in made.found.runs["a"][OURS]] == [1, 1, 1, 1]


def test_both_sides_get_nine_tenths_of_what_the_slower_one_sustains(runner: Any, tmp_path: Path) -> None:
    def one(case: Case) -> dict[str, Any]:
        if case.subject != OURS and case.body == 2:
            return {"skipped": "no java"}
        return {"sustained_per_s": 5000 if case.subject == OURS else 1000, "held_per_s": case.rate, "msgs_per_s": case.rate}

    made, ran = runner(one)
    made.at_rate(GROUP, Place(tmp_path))
    assert [c.rate for c in ran] == [0, 0, 0, 0, 900, 900, 900, 900]
    assert {r["msgs_per_s"] for sides in made.found.runs.values() for runs in sides.values() for r in runs} == {900}
    assert list(made.found.runs) == ["a"] and list(made.found.missing) == ["b/rocketmq"]


def test_every_case_makes_sense_and_becomes_small() -> None:
    for group in cases.CASES.values():
        for sides in group.values():
            for subject, case in sides.items():
                assert case.complete().subject == subject
                small = cases.quick(case.complete())
                assert small.seconds <= 0.1 and small.cap_mib <= 16 and small.rate <= cases.QUICK_RATE


def test_a_group_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert pairs.main(["--group", "databases", "--only", "one_sync_1024", "--quick", "--dir", str(tmp_path / "d"),
                       "--out", str(out)]) == 0
    told = json.loads(out.read_text())
    (run,) = told["runs"]["one_sync_1024"][OURS]
    assert run["cpu_ns_per_msg"] > 0 and run["sustained_per_s"] > 0 and run["p999_us"] > 0
    assert "sqlite" in told["runs"]["one_sync_1024"] and str(tmp_path) not in out.read_text()
    assert "one_sync_1024: sqlite" in capsys.readouterr().out
    assert list((tmp_path / "d").iterdir()) == []


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("group", list(cases.CASES))
def test_all_groups_run(group: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert pairs.main(["--group", group, "--quick", "--dir", str(tmp_path / "d"), "--out", str(out)]) == 0
    told = json.loads(out.read_text())
    assert told["failed"] == {} and told["runs"]


def test_figures_of_a_row_are_its_numbers() -> None:
    assert numbers({"a": 1, "b": "x", "c": {"d": 2.5, "e": [1]}, "f": True, "reps": 3, "histograms": {"g": 1}}) == {
        "a": 1, "c_d": 2.5}
    found = Found()
    found.add("case", "side", {"missing": "no disk", "a": 1})
    found.add("case", "side", {"missing": None, "a": 1})
    assert found.missing == {"case/side": "no disk"} and found.runs == {"case": {"side": [{"a": 1}]}}


def test_what_the_suite_found_has_the_same_form() -> None:
    runs = [{"msgs_per_s": 1, "histograms": {}}, {"msgs_per_s": 2}]
    several = [{"case": {"subject": "fio"}, "name": "put", "dir": "ext4", "runs": runs},
               {"case": {"subject": OURS}, "name": "get", "dir": "DIR", "runs": [], "skipped": "no room"},
               {"case": {"subject": OURS}, "name": "scan", "dir": "DIR", "runs": [], "error": "broken"}]
    found = suite.as_found(several)
    assert found.runs == {"put in ext4": {"fio": [{"msgs_per_s": 1}, {"msgs_per_s": 2}]}}
    assert found.missing == {f"get in DIR/{OURS}": "no room"} and found.failed == {f"scan in DIR/{OURS}": "broken"}


@pytest.mark.slow
def test_micro_benchmarks_stand_beside_what_is_committed(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert micro.main(["--quick", "--dir", str(tmp_path / "d"), "--out", str(out)]) == 0
    runs = json.loads(out.read_text())["runs"]
    assert runs["test_decode_record"][OURS][0].keys() >= {"min_ns", "median_ns", "ratio", "committed_ratio"}


# ---- at a rate

class Clock:
    """A clock that goes on by itself by 10 ns a look, and by what is slept."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        self.now += 10
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.mark.parametrize("alone", [True, False])
def test_a_refused_put_is_tried_again_and_counts_from_when_it_was_due(alone: bool) -> None:
    clock, tried, times = Clock(), [0], []
    pace = Pace(first=2000, alone=alone)

    def put(body: bytes) -> None:
        tried[0] += 1
        if tried[0] in (3, 4):
            raise PoolExhausted("full")

    count = loops("bare").due(put, "", [[(b"x",)] * 64], 64, 1 << 62, clock, times.append, lambda ns: None, 1_000_000,
                              clock.sleep, pace)
    assert (count, tried[0], pace.fails, len(times)) == (64, 66, 2, 64)
    # 2 ms of waiting after a put that was due at 2 ms: the next one, due a millisecond later, is late, too
    assert all(ns < 1000 for ns in times[:2]) and 2_000_000 <= times[2] < 2_001_000 and 1_000_000 <= times[3] < 1_001_000
    assert all(ns < 1000 for ns in times[5:])
    assert pace.spun > 0 if alone else pace.spun < 1000 * 64


def test_producers_begin_together_and_spread_evenly(tmp_path: Path) -> None:
    case = Case("put_threads", rate=400, seconds=0.05, cap_mib=16, segment_mib=16).complete()
    with puts.opened(tmp_path / "s", case) as store:
        producers = puts.drive(store, case, "due", 1 << 20)
        assert len({p.started for p in producers}) == 1
        gap = 1_000_000_000 // 400
        assert [p.pace.first - p.started for p in producers] == [n * gap for n in range(4)]
        assert sum(p.count for p in producers) == 20


def test_the_line_lets_nobody_go_before_the_last_is_there() -> None:
    line, begun = puts.Line(3), []
    threads = [threading.Thread(target=lambda: begun.append(line.start())) for _ in range(2)]
    for t in threads:
        t.start()
    last = time.perf_counter_ns()
    assert line.start() >= last
    for t in threads:
        t.join()
    assert len(set(begun)) == 1 and begun[0] >= last


def test_a_run_at_a_rate_says_what_it_held(tmp_path: Path) -> None:
    run = puts.run(Case("put_async", body=100, rate=2000, seconds=0.1, cap_mib=16, segment_mib=16).complete(), tmp_path)
    assert 0 < run["cpu_ns_per_msg"] < 1e9 * run["secs"] * 2 / 200
    assert run["msgs"] == 200 and run["rate_per_s"] == 2000 and 0 < run["held_per_s"] <= 2000 and run["fails"] == 0


# ---- peers

def test_buckets_of_the_java_side_become_a_histogram() -> None:
    made = java._histogram([[1000, 3], [1010, 1], [50_000, 1]])
    assert (made.count, made.highest, made.lowest) == (5, 50_000, 1000)
    assert made.quantile(.5) == pytest.approx(1000, rel=.02) and java._histogram([]).count == 0


def test_what_sqlite_has_flushed_is_in_its_file(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    peer = peers.Sqlite(Case("put_async").complete(), base)
    for _ in range(10):
        peer.put(b"body")
    peer.flush()
    shutil.copy(base / "db", tmp_path / "copy")      # without its write-ahead log
    with sqlite3.connect(tmp_path / "copy") as db:
        assert db.execute("select count(*) from message").fetchone() == (10,)
        assert peer._db.execute("pragma synchronous").fetchone() == (2,)
    db.close()
    peer.close()


@pytest.mark.parametrize("script", ["exit 3", "echo '{\"jobs\": [{\"error\": 0, \"usr_cpu\": 0, \"sys_cpu\": 0, \"write\": "
                                    "{\"total_ios\": 0, \"runtime\": 5, \"io_bytes\": 0, \"iops\": 0}}]}'"])
def test_fio_that_fails_or_writes_nothing_is_an_error(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "fio"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    case = replace(Case("put_sync", subject="fio", cap_mib=1), file_state="sparse").complete()
    with pytest.raises(RuntimeError, match=r"fio (ended with 3|wrote 0 times)"):
        fio.run(case, tmp_path)

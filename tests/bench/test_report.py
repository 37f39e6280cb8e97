"""The parts of the benchmarks that turn samples into verdicts: a wrong one would praise or blame us for nothing."""
from bench import targets
from bench.compare_rocketmq import ALONE, PAIRS, flat
from rmq_store.bench.figures import medians


def test_medians_leave_out_what_is_no_number() -> None:
    assert medians([{"a": 1, "b": "x", "c": 3}, {"a": 5, "b": "y"}, {"a": 2, "b": "z", "c": 1}]) == {"a": 2}


def test_targets_name_cases_that_exist() -> None:
    ours = {case: _Everything() for case in (*PAIRS, *ALONE)}
    java = {case: _Everything() for case in PAIRS}
    assert all(o.met is not None for o in targets.judge(ours, java))


def test_verdicts() -> None:
    put = {"median_ns": 100.0, "sustained_per_s": 6e6, "p999_us": 3.0, "max_us": 1000.0, "msgs": 1000, "producer_faults": 0}
    by_text = {o.text: o for o in targets.judge({"put_100": put}, {"put_100": {"sustained_per_s": 1e6, "p999_us": 10.0}})}
    assert by_text["put 100 B, no properties: median of a call"].words() == "PASS"
    assert by_text["put 100 B sustained, all flushed and dispatched"].value == 6
    assert by_text["put 100 B p99.9"].words() == "short of"
    assert by_text["put 100 B worst pause"].words() == "not measured"
    assert "short of" in targets.table(list(by_text.values()))


def test_idle_lines_are_told_apart() -> None:
    lines = [{"bench": "idle", held: 1, "write_path": path, "beyond_pool_mib": mib, "open_ms": 10.0 * mib}
             for held, path, mib in (("queues", "mmap", 1), ("queues", "pool", 2), ("mib", "mmap", 3), ("mib", "pool", 4))]
    assert flat("idle", lines) == {"log_mmap_mib": 3, "log_pool_mib": 4, "queues_mib": 1, "queues_open_ms": 10.0}


class _Everything(dict[str, float]):
    def __missing__(self, key: str) -> float:
        return 1.0

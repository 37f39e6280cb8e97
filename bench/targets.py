"""What the project promised about speed and size, one line each, and where its figures come from.

`ours` and `java` are the medians of the repeated runs, by "step/case" of a figures run (bench/figures/steps.py); a subject that
is neither this library nor RocketMQ stands behind the case. A line whose figures are missing is shown as not measured.

    python -m bench.targets bench/results/figures.json
"""
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load.others import undisturbed
from bench.load.subjects import PAIR, POOL, REAL
from rmq_store.bench.case import OURS
from rmq_store.bench.figures import medians

Figures = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Target:
    """One promise: `value(ours, java)` must be on the good side of `limit`."""

    text: str
    unit: str
    limit: float
    value: Callable[[Figures, Figures], float]
    at_least: bool = True
    parts: Callable[[Figures, Figures], tuple[float, float]] | None = None      # of a ratio: ours, java


@dataclass(frozen=True)
class Outcome:
    text: str
    target: str
    value: float | None
    ours: float | None
    java: float | None
    met: bool | None

    def words(self) -> str:
        if self.met is None:
            return "not measured"
        return "PASS" if self.met else "short of"


def _ratio(text: str, limit: float, case: str, key: str, java_key: str | None = None, at_least: bool = True,
           java_case: str | None = None) -> Target:
    def parts(ours: Figures, java: Figures) -> tuple[float, float]:
        return ours[case][key], java[java_case or case][java_key or key]

    def value(ours: Figures, java: Figures) -> float:
        mine, theirs = parts(ours, java)
        return mine / theirs
    return Target(text, "x", limit, value, at_least, parts)


def _plain(text: str, unit: str, limit: float, case: str, key: str, scale: float = 1, at_least: bool = True) -> Target:
    return Target(text, unit, limit, lambda ours, java: ours[case][key] * scale, at_least)


PUT_100, PUT_1024, AT_RATE = "beside/put_100", "beside/put_1024", "at_rate/"
IDLE = "private memory of an open, idle store beyond its pool"


def _better(text: str, limit: float, case: str, key: str, at_least: bool = True, who: str = "") -> Target:
    """Beside the better of the real ones that the run has: the faster where more is better, else the lesser."""
    def parts(ours: Figures, _: Figures) -> tuple[float, float]:
        real = []
        for name in REAL:
            with suppress(KeyError):
                real.append(ours[f"{case}/{name}"][key])
        if not real:
            raise KeyError(case)
        return ours[case + who][key], max(real) if at_least else min(real)

    def value(ours: Figures, java: Figures) -> float:
        mine, theirs = parts(ours, java)
        return mine / theirs
    return Target(text, "x", limit, value, at_least, parts)


def _between(text: str, limit: float, case: str, other: str, key: str, at_least: bool = False) -> Target:
    """Two cases of this library."""
    return Target(text, "x", limit, lambda ours, _: ours[case][key] / ours[other][key], at_least,
                  lambda ours, _: (ours[case][key], ours[other][key]))


def _client(release: str, threads: int, rate: float) -> list[Target]:
    case, real = f"clients/{release}_{threads}", f"clients/{release}_{threads}/{release}"
    text = f"Java client of {release}, {threads} threads, synchronous sends of 1 KiB"
    return [_between(f"{text}: rate", rate, case, real, "per_s", at_least=True),
            _between(f"{text}: p99", 0.5, case, real, "p99_us")]


SEND, PULL = "broker/send_64x32", "broker/pull_16x4"
NETWORK = (
    _better("broker: sends of 1 KiB, 64 connections, 32 each", 5, SEND, "per_s"),
    _better("broker: the same over the pool", 5, SEND, "per_s", who=f"/{POOL}"),
    _plain("broker: sends of 1 KiB", "/s", 300_000, SEND, "per_s"),
    _plain("broker: the same over the pool", "/s", 300_000, f"{SEND}/{POOL}", "per_s"),
    _better("broker: pulls of 32, 16 connections, 4 each", 5, PULL, "per_s"),
    _better("broker: processor time of a send", 0.2, SEND, "cpu_us", at_least=False),
    _better("broker: processor time of a message in a pull", 0.2, PULL, "cpu_us_per_message", at_least=False),
    _plain("broker: from exec on an empty directory until it answers", "ms", 150, "broker/rest", "ready_ms", at_least=False),
    _plain("broker: memory at rest", "MiB", 40, "broker/rest", "rss_mib", at_least=False),
    *(line for release in REAL for threads, rate in ((1, 1.5), (16, 1.7), (64, 1.6))
      for line in _client(release, threads, rate)),
    # 1.00, and what two stores without a broker scatter
    *(_plain(f"put 100 B beside an idle broker of its process ({path})", "x", 1.01, f"embedded/embedded_idle/{path}", "ratio",
             at_least=False) for path in ("mmap", "pool")),
    *(_between(f"network thread, {load}: p99 beside a busy Python thread", 1.2, f"network/{load}_busy/native",
               f"network/{load}/native", "p99_us") for load in ("send_1x1", "send_16x16", "pull_1x1")),
    _plain("network thread: processor time of a send, 16 connections, 16 each", "us", 4, "network/send_16x16/native",
           "cpu_us_rmq-network", at_least=False),
    *(_plain(f"replication: lag at 100,000 puts a second of 1 KiB, {name}", "us", limit, "replication/lag_100000", key,
             at_least=False) for name, key, limit in (("median", "p50_us", 200), ("p99", "p99_us", 2000))),
    *(_plain(f"replication: the same without a reader, {name}", "us", limit, "replication/lag_100000", key, at_least=False)
      for name, key, limit in (("median", "behind_p50_us", 200), ("p99", "behind_p99_us", 2000))),
    _between("replication: the same p99 beside a bare pair", 1.5, "replication/lag_100000",
             f"replication/lag_100000/{PAIR}", "p99_us"),
    _plain("replication: a put of the master beside one without a slave", "x", 1.03, "replication/put/slave", "ratio",
           at_least=False),
    _better("replication: put_async, 512 under way, each waits for the slave", 5, "replication/window", "per_s"),
    _between("replication: put_async, 512 under way, beside a bare pair", 0.6, "replication/window",
             f"replication/window/{PAIR}", "per_s", at_least=True),
    _plain("replication: one put that waits for the slave beside a round trip and a put", "x", 1.5, "replication/single",
           "ratio", at_least=False),
    _better("replication: processor time of both sides for a MiB", 0.25, "replication/catch_up", "cpu_us_per_mib",
            at_least=False),
    _between("replication: a slave that catches up beside a bare copy", 0.8, "replication/catch_up",
             "replication/catch_up/bare", "mib_per_s", at_least=True),
    _plain("replication: puts of the master meanwhile", "x", 1.11, "replication/catch_up_puts", "wall_ratio", at_least=False),
)

TARGETS = (
    _plain("put 100 B, no properties: median of a call", "ns", 150, PUT_100, "median_ns", at_least=False),
    _plain("put 100 B, tags and one key: median of a call", "ns", 200, "alone/put_100_tagged", "median_ns", at_least=False),
    _ratio("put 100 B sustained, all flushed and dispatched", 5, PUT_100, "sustained_per_s"),
    _ratio("put 1 KiB, a pool of 2 GiB each, sustained, all flushed and dispatched", 3.5, PUT_1024, "sustained_per_s"),
    _ratio("put 100 B at the same rate, p99.9", 0.25, AT_RATE + "put_100", "p999_us", at_least=False),
    _ratio("put 100 B at the same rate, worst pause", 0.25, AT_RATE + "put_100", "max_us", at_least=False),
    _ratio("put 1 KiB at the same rate, p99.9", 0.25, AT_RATE + "put_1024", "p999_us", at_least=False),
    _ratio("put 1 KiB at the same rate, worst pause", 0.25, AT_RATE + "put_1024", "max_us", at_least=False),
    Target("page faults of the producer's thread over the pool, per million puts", "", 100,
           lambda ours, java: ours[PUT_100]["producer_faults"] / ours[PUT_100]["msgs"] * 1e6, at_least=False),
    _plain("put_many 100 B, a burst into 2 GiB of pool", "M/s", 12, "beside/many_100", "burst_per_s", 1e-6),
    _ratio("put_many 100 B beside batches of 128, a burst", 3, "beside/many_100", "burst_per_s"),
    _plain("four threads beside one, in turns, 100 B", "x", 1, "threads/threads", "ratio"),
    _plain("four threads beside one, in turns, 100 B, sys.setswitchinterval(0.1)", "x", 1, "threads/threads", "long_ratio"),
    _ratio("four threads at the same rate, 100 B, p99.9", 0.25, AT_RATE + "put_100_4", "p999_us", at_least=False),
    _plain("dispatch alone, no keys", "M/s", 6, "dispatch-lean/dispatch_lean", "dispatched_per_s", 1e-6),
    _plain("dispatch alone, UNIQ_KEY and one key each", "M/s", 2, "dispatch-full/dispatch_full", "dispatched_per_s", 1e-6),
    _plain("query by key, warm, one hit, median", "us", 3, "alone/query", "p50_us", at_least=False),
    _plain("one synchronous put beside the bare C loop, median (mmap)", "x", 1.10, "bare-mmap/sync_single_mmap", "ratio",
           at_least=False),
    _plain("one synchronous put beside the bare C loop, median (pool)", "x", 1.10, "bare-pool/sync_single_pool", "ratio",
           at_least=False),
    _ratio("64 threads, synchronous, 1 KiB", 1.5, "beside/sync_64", "sustained_per_s"),
    _ratio("put_async, 512 under way, synchronous, 1 KiB", 4, "beside/window_512", "sustained_per_s"),
    _plain("get of 32 messages with views, a message", "ns", 150, "beside/read", "ns_per_msg", at_least=False),
    _ratio("get of 32 messages as views beside the decoded pull", 3, "beside/read", "msgs_per_s", "decoded_msgs_per_s"),
    _ratio("get of 32 messages, each body looked at, beside the decoded pull", 3, "beside/read", "bodies_msgs_per_s",
           "decoded_msgs_per_s"),
    _plain("raw log scan in C, warm", "GiB/s", 4, "alone/scan", "plain_gib_per_s"),
    _plain("a dirty log of 1 GiB: its scan with CRC, which is a part of the open", "ms", 300, "alone/scan", "crc_ms_per_gib",
           at_least=False),
    _plain("a failed sync: until the last of 64 waiters knows", "ms", 100, "fence/fence/fdatasync (pool)", "last_ms_max",
           at_least=False),
    _plain(f"{IDLE} (1 GiB in it, mmap)", "MiB", 32, "idle/idle_log/mmap", "beyond_pool_mib", at_least=False),
    _plain(f"{IDLE} (1 GiB in it, pool)", "MiB", 32, "idle/idle_log/pool", "beyond_pool_mib", at_least=False),
    _plain(f"{IDLE} (10,000 queues)", "MiB", 32, "idle/idle_queues/mmap", "beyond_pool_mib", at_least=False),
    _plain("open with 10,000 queues", "s", 1, "idle/idle_queues/mmap", "open_ms", 1e-3, at_least=False),
    *NETWORK,
)


def found(steps: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Medians of the steps of a figures run, of this library and of RocketMQ; of repetitions that nobody disturbed."""
    ours: dict[str, dict[str, float]] = {}
    java: dict[str, dict[str, float]] = {}
    for step, kept in steps.items():
        for case, sides in kept["runs"].items():
            for subject, runs in sides.items():
                side = java if subject == "rocketmq" else ours
                key = f"{step}/{case}" + ("" if subject in (OURS, "rocketmq") else f"/{subject}")
                side[key] = medians(undisturbed(runs))
    return ours, java


def judge(ours: Figures, java: Figures, targets: Iterable[Target] = TARGETS) -> list[Outcome]:
    """Every target beside what was measured."""
    outcomes = []
    for t in targets:
        sign = ">=" if t.at_least else "<="
        target = f"{sign} {t.limit:g}{' ' + t.unit if t.unit not in ('', 'x') else ''}{' x' if t.unit == 'x' else ''}"
        try:
            value = t.value(ours, java)
            mine, theirs = t.parts(ours, java) if t.parts else (None, None)
        except (KeyError, ZeroDivisionError):
            outcomes.append(Outcome(t.text, target, None, None, None, None))
            continue
        met = value >= t.limit if t.at_least else value <= t.limit
        outcomes.append(Outcome(t.text, target, round(value, 4), mine, theirs, met))
    return outcomes


def number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def table(outcomes: list[Outcome], verdicts: bool = True, peer: str = "RocketMQ") -> str:
    """The outcomes for people."""
    width = max(len(o.text) for o in outcomes)
    lines = [f"{'':{width}}  {'ours':>12} {peer:>12} {'measured':>10}  {'target':>12}"]
    for o in outcomes:
        figures = f"{number(o.ours):>12} {number(o.java):>12} {number(o.value):>10}"
        lines.append(f"{o.text:{width}}  {figures}  {o.target:>12}  {o.words() if verdicts else ''}".rstrip())
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """The verdicts on the document of a figures run."""
    if len(argv) != 1:
        print("usage: python -m bench.targets FIGURES.json", file=sys.stderr)
        return 64
    print(table(judge(*found(json.loads(Path(argv[0]).read_text())["steps"]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

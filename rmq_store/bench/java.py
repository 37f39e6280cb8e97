"""The Java peers: the real RocketMQ store and Chronicle Queue, in-process, through the scripts of the checkout's tools/interop.

Skipped, with the script's reason, where there is no checkout, no JDK or no mvn (and no jars fetched before). The option `mode`
(async, async_pool, sync) chooses RocketMQ's write path, `version` its release; other options go to the script as they are.
"""
import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench.case import Case, Skip
from rmq_store.bench.ours import Figures, histograms

SCRIPTS = Path(__file__).parents[2] / "tools" / "interop"
_FIGURES = ("msgs", "secs", "fails", "msgs_per_s", "sustained_per_s", "p50_us", "p99_us", "p999_us", "max_us", "drain_ms",
            "record_bytes", "cpu_secs", "cpu_ns_per_msg", "foreign", "rate_per_s", "held_per_s", "service_p50_us",
            "service_p999_us", "service_max_us")


def _lines(command: list[str], more_env: dict[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, env=os.environ | more_env, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        raise Skip(done.stderr.strip().removeprefix("SKIP: "))
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-2000:].strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _histogram(counts: list[list[int]]) -> Histogram:
    """Of [ns, count] of each bucket of the Java side."""
    slots: Counter[int] = Counter()
    for ns, n in counts:
        ((slot, _),) = Histogram([ns]).to_dict()["counts"]
        slots[slot] += n
    return Histogram.from_dict({"total": sum(ns * n for ns, n in counts), "lowest": min((ns for ns, _ in counts), default=0),
                                "highest": max((ns for ns, _ in counts), default=0), "counts": list(slots.items())})


def _rocketmq(case: Case, base: Path) -> tuple[list[str], dict[str, str]]:
    options = dict(case.options)
    version = str(options.pop("version", "4.9.8"))
    small = options.pop("small", None)
    more = [f"{k}={v}" for k, v in options.items() if k != "mode"]
    env = {}
    if small:       # to see that it runs: no figures
        more += ["warmup=0.1", "cfg.mappedFileSizeCommitLog=67108864", "cfg.maxIndexNum=100000", "pool=1"]
        env["RMQ_BENCH_JAVA_OPTS"] = "-Xms512m -Xmx512m -XX:-AlwaysPreTouch"
    head = [str(SCRIPTS / "bench_rocketmq.sh"), "--rocketmq", version, "--dir", str(base)]
    if case.workload == "get":
        return [*head, "read", f"body={case.body}", "reps=1", *(["n=2000"] if small else []), *more], env
    mode = options.get("mode") or ("sync" if case.flush_mode == "sync" else "async_pool")
    window = case.window if case.workload in ("put_async_window", "put_asyncio") else 1
    return [*head, "put", f"mode={mode}", f"threads={case.producers}", f"window={window}", f"batch={case.batch}",
            f"body={case.body}", f"props={case.props}", f"seconds={case.seconds}", f"capMiB={case.cap_mib}", "reps=1",
            f"pretouch={case.pretouch_mib}", f"rate={case.rate}", f"settle={case.settle_s}",
            f"once={str(case.workload == 'put_sustained').lower()}", *more], env


def _chronicle(case: Case, base: Path) -> tuple[list[str], dict[str, str]]:
    small = ["warmup=0.1"] if case.options.get("small") else []
    return [str(SCRIPTS / "bench_chronicle.sh"), "--dir", str(base), f"body={case.body}", f"seconds={case.seconds}",
            f"capMiB={case.cap_mib}", f"pretouch={case.pretouch_mib}", f"settle={case.settle_s}", *small], {}


def run(case: Case, base: Path) -> Figures:
    """One run of one peer. Raises Skip where it cannot run here."""
    if case.subject == "chronicle" and case.workload != "put_async":
        raise Skip("chronicle has no workload but put_async")
    if case.workload in ("query_key", "scan", "recover", "mixed") or (case.rate and case.subject == "chronicle"):
        raise Skip(f"{case.subject} has no workload {case.workload}{' at a rate' if case.rate else ''}")
    command, env = (_rocketmq if case.subject == "rocketmq" else _chronicle)(case, base)
    if not os.path.exists(command[0]):
        raise Skip(f"{case.subject} is measured from a checkout of rmq_store only: no {command[0]}")
    lines = _lines(command, env)
    if case.workload == "get":
        pulls = {r["decode"]: {k: r[k] for k in _FIGURES if k in r} for r in lines
                 if r["bench"] == "getMessage" and r["maxMsgs"] == 32}
        return {**pulls[False], "decoded": pulls[True]}
    (found,) = [line for line in lines if not line.get("summary")]
    if not found["msgs"]:
        raise RuntimeError(f"{case.subject} put nothing: {found}")
    times = _histogram(found["counts"])
    figures = {k: found[k] for k in _FIGURES if k in found}
    if "record_bytes" in found:
        mib = found["record_bytes"] / (1 << 20)
        figures |= {"mib_per_s": round(found["msgs_per_s"] * mib, 1),
                    "sustained_mib_per_s": round(found["sustained_per_s"] * mib, 1)}
    return {**figures, "histograms": histograms(**{"response" if case.rate else "call": times})}

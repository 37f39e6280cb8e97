"""How many queue entries a second a SQL92 filter passes over or returns, on one thread, beside RocketMQ's evaluator.

Ours is the whole read: entries of the queue, the records in the page cache, their properties and the expression, through
store.get. RocketMQ's is less work: it decodes the same properties and evaluates the same expression, over and over, without a
store (tools/interop/filter). Both take turns, one after the other. A figure is of the best of --rounds.

    python -m bench.load.filter --dir DIR --out FILE
"""
import argparse
import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.load.driver import report
from rmq_store import MessageStore, SqlFilter
from rmq_store.bench import machine
from rmq_store.bench.runner import scratch
from rmq_store.codec._properties import encode_properties

JAVA = Path(__file__).parents[2] / "tools" / "interop" / "filter_with_rocketmq.sh"
TOPIC = "Filtered"
# What part of the messages fulfils it: name -> expression. `n` runs from 0 to 999.
CASES = {"none": "n > 1000 AND region = 'eu'", "one_in_1000": "n = 7 AND region IN ('eu', 'us')",
         "half": "n BETWEEN 0 AND 499", "text": "name CONTAINS 'x-77' OR name STARTSWITH 'q'"}


def properties(i: int) -> dict[str, str]:
    """As an order may have them, behind what a broker's client adds."""
    return {"UNIQ_KEY": f"7F00000100002A139A5500000000{i:04X}", "WAIT": "true", "TAGS": "order", "KEYS": f"order-{i}",
            "n": str(i % 1000), "region": ("eu", "us", "cn")[i % 3], "name": f"customer-{i * 7919 % 10_007}"}


def walk(store: MessageStore, chosen: SqlFilter, count: int) -> dict[str, int]:
    """One walk through the queue: entries a second, CPU time an entry, and how many messages it returned."""
    offset = found = 0
    cpu, begun = time.thread_time_ns(), time.perf_counter()
    while offset < count:
        result = store.get(TOPIC, 0, offset, 1024, sql=chosen)
        found += len(result)
        offset = result.next_offset
    took = time.perf_counter() - begun
    return {"entries_per_s": round(count / took), "cpu_ns_per_entry": round((time.thread_time_ns() - cpu) / count),
            "matched": found}


class Java:
    """RocketMQ's evaluator in a JVM. `missing` says why there is none."""

    def __init__(self) -> None:
        self.missing = ""
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([JAVA], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout is not None and self.process.stderr is not None
        if self.process.stdout.readline() != "ready\n":
            said = self.process.stderr.read().strip().splitlines()
            self.missing = said[-1] if said else "the evaluator did not start"

    def rate(self, sql: str, messages: Sequence[bytes], seconds: float) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        fields = ["bench", str(seconds), sql.encode().hex(), *(message.hex() for message in messages)]
        self.process.stdin.write("\t".join(fields) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline().split()[0])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(base: Path, count: int, rounds: int, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": {}, "missing": {}, "failed": {}}
    stored = [encode_properties(properties(i)) for i in range(1000)]
    java = Java()
    with MessageStore.open(base / "store", segment_size_bytes=1 << 30, index_enabled=False, get_bytes_max_memory=1 << 30,
                           get_count_max_memory=1024, filter_bytes_max=1 << 20) as store:
        for i in range(count):
            store.put(TOPIC, b"b" * 100, properties=properties(i))
        store.wait_dispatched()
        for case, sql in CASES.items():
            chosen = SqlFilter(sql)
            walk(store, chosen, count)          # brings pages and caches in
            subjects: dict[str, Any] = {"rmq_store": [walk(store, chosen, count) for _ in range(rounds)]}
            if java.missing:
                found["missing"][f"{case}/rocketmq"] = java.missing
            else:
                subjects["rocketmq"] = [{"entries_per_s": java.rate(sql, stored, seconds)} for _ in range(rounds)]
            found["runs"][case] = subjects
            report({"bench": "filter", "case": case, "sql": sql, "matched": subjects["rmq_store"][0]["matched"],
                    "entries": count} | {
                f"{name}_entries_per_s": max(run["entries_per_s"] for run in runs) for name, runs in subjects.items()})
    java.close()
    return found


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="where the store is made")
    p.add_argument("--out", type=Path, help="also write machine and figures as JSON")
    p.add_argument("--quick", action="store_true", help="seconds instead of minutes: shows that it runs, measures nothing")
    p.add_argument("--rounds", type=int, default=5, help="default 5")
    args = p.parse_args(argv)
    with scratch(args.dir) as base:
        found = measure(base, 20_000 if args.quick else 1_000_000, 1 if args.quick else args.rounds, 0.2 if args.quick else 3)
    if args.out is not None:
        args.out.write_text(json.dumps({"machine": machine.describe(args.dir)} | found, indent=1) + "\n")


if __name__ == "__main__":
    main()

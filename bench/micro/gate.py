"""The regression gate of the micro benchmarks: each as a ratio to the yardstick beside it, compared with the ratios committed.

Ratios, because two machines differ in speed and much less in proportion; minima, because others on the machine only ever add.
Of several files the lowest ratio counts, for the same reason.

    python -m pytest bench/micro --benchmark-only --benchmark-json=FILE && python -m bench.micro.gate FILE... [--update]
"""
import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RATIOS = Path(__file__).with_name("ratios.json")
LIMIT = 1.4         # so much dearer than committed is a regression
ELSEWHERE = ("test_put_async_and_wait", "test_put_to_waiting_get")      # the disk's affair, or the scheduler's


def ratio(benchmark: Mapping[str, Any]) -> float:
    """Of a benchmark in pytest-benchmark's JSON: its minimum by its yardstick. Raises KeyError without one."""
    return float(benchmark["stats"]["min"] / benchmark["extra_info"]["yardstick_s"])


def ratios(*documents: Mapping[str, Any]) -> dict[str, float]:
    """The lowest ratio of each benchmark."""
    found: dict[str, float] = {}
    for benchmark in (b for document in documents for b in document["benchmarks"]):
        name = benchmark["name"]
        if not name.startswith(ELSEWHERE):
            found[name] = min(found.get(name, math.inf), ratio(benchmark))
    return dict(sorted(found.items()))


def findings(now: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """What has become dearer than LIMIT times what was committed, and what the committed ratios do not know."""
    found = [f"{name}: {now[name] / before[name]:.2f} x what it was, at most {LIMIT} x" for name in now
             if name in before and now[name] > LIMIT * before[name]]
    return found + [f"{name}: has no committed ratio, run this with --update" for name in now if name not in before]


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", type=Path, nargs="+", metavar="FILE", help="pytest-benchmark's JSON")
    p.add_argument("--update", action="store_true", help="commit to these ratios from now on")
    args = p.parse_args(argv)
    now = ratios(*(json.loads(path.read_text()) for path in args.results))
    if args.update:
        RATIOS.write_text(json.dumps({k: float(f"{v:.3g}") for k, v in now.items()}, indent=1) + "\n")
        print(f"{len(now)} ratios written to {RATIOS.name}")
        return 0
    found = findings(now, json.loads(RATIOS.read_text()))
    print("\n".join(found) or f"{len(now)} benchmarks, none dearer than {LIMIT} x")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

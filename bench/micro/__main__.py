"""The micro benchmarks beside their yardstick: nanoseconds of a call, and the ratio that the gate (gate.py) holds.

    python -m bench.micro --dir DIR --out FILE
"""
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.load.driver import Found, parser, report
from bench.micro import gate
from rmq_store.bench.runner import scratch

ROOT = Path(__file__).parents[2]
FEW = "codec"       # with --quick


def main(argv: list[str] | None = None) -> int:
    args = parser(__doc__).parse_args(argv)
    found, committed = Found(), json.loads(gate.RATIOS.read_text())
    with scratch(args.dir) as base:
        result = base / "micro.json"
        few = ["-k", FEW, "--benchmark-min-rounds=1", "--benchmark-max-time=0.001"] if args.quick else []
        done = subprocess.run([sys.executable, "-m", "pytest", str(ROOT / "bench/micro"), "-q", "--benchmark-only",
                               f"--benchmark-json={result}", f"--basetemp={base / 'stores'}", "-p", "no:cacheprovider", "-p",
                               "no:xdist", *few],
                              cwd=ROOT, stdout=sys.stderr, check=False,
                              env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")})
        if done.returncode:
            return 1
        document = json.loads(result.read_text())
    for benchmark in document["benchmarks"]:
        name, stats = benchmark["name"], benchmark["stats"]
        row = {"bench": "micro", "case": name, "min_ns": round(stats["min"] * 1e9, 1),
               "median_ns": round(stats["median"] * 1e9, 1), "ratio": round(gate.ratio(benchmark), 6)}
        if name in committed:
            row["committed_ratio"] = committed[name]
        report(row)
        found.add(name, "rmq_store", row)
    found.write(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())

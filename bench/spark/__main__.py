"""All of it, in one command: python -m bench.spark --dir DIR [--smoke]

Ratios and the scaling run, and bench/results/spark-<time>.json. DIR wants 4 GiB free; some five minutes on an idle machine with
two cores. --smoke takes small stores and keeps no result: does it all still run?
"""
import argparse
import json
import time
from pathlib import Path

from bench.spark import ratios, scaling

RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    mib, reps = ((64, 32), 1) if args.smoke else ((1024, 512), 3)
    result = {"ratios": ratios.run(args.dir, mib[0], reps), "scaling": scaling.run(args.dir, mib[1], min(reps, 2))}
    if not args.smoke:
        path = RESULTS / f"spark-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"\n{path}")


if __name__ == "__main__":
    main()

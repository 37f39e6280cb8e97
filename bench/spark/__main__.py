"""All of it, in one command: python -m bench.spark --dir DIR [--smoke]

Figures, ratios and goals (ratios.py) and the scaling run (scaling.py), and bench/results/spark-<time>.json with the machine,
each goal with its value and whether it is met, and all figures. DIR wants 4 GiB free; some five minutes on an idle machine with
two cores. --smoke takes small stores, judges nothing and keeps no result unless --out says where: does it all still run?
"""
import argparse
import json
import time
from pathlib import Path
from typing import Any

from bench.spark import ratios, scaling
from rmq_store.bench import machine

RESULTS = Path(__file__).resolve().parents[1] / "results"


def document(about: dict[str, Any], measured: dict[str, Any], scaled: dict[str, Any], smoke: bool) -> dict[str, Any]:
    """What the file holds. A goal that nothing was measured for, or too little, is neither met nor missed: null."""
    goals = [{"text": o.text, "goal": o.target, "value": o.value, "met": o.met} for o in ratios.judged(measured)]
    return {"machine": about, "smoke": smoke, "goals": goals, "ratios": measured, "scaling": scaled}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="where the file goes: bench/results, and nowhere with --smoke")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    mib, reps = ((64, 32), 1) if args.smoke else ((1024, 512), 3)
    args.dir.mkdir(parents=True, exist_ok=True)
    about = machine.describe(args.dir)
    measured = ratios.run(args.dir, mib[0], reps)
    scaled = scaling.run(args.dir, mib[1], min(reps, 2))
    ratios.tell(measured)
    out = args.out or (None if args.smoke else RESULTS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"spark-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
        path.write_text(json.dumps(document(about, measured, scaled, args.smoke), indent=1) + "\n")
        print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()

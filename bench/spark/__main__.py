"""All of it, in one command: python -m bench.spark --dir DIR [--out FILE] [--quick]

Figures, ratios and goals (ratios.py) and the scaling run (scaling.py). --out writes them as the drivers of bench/load do, with
each goal, its value and whether it is met. DIR wants 4 GiB free; some five minutes on an idle machine with two cores. --quick
takes small stores and judges nothing: does it all still run?
"""
import importlib.util
import sys
from typing import Any

from bench.load.driver import Found, parser
from rmq_store.bench.case import OURS


def goals_of(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """A goal that nothing was measured for, or too little, is neither met nor missed: null."""
    from bench.spark import ratios
    return [{"text": o.text, "goal": o.target, "value": o.value, "met": o.met} for o in ratios.judged(measured)]


def main(argv: list[str] | None = None) -> None:
    args = parser(__doc__).parse_args(argv)
    found = Found()
    if importlib.util.find_spec("pyspark") is None:
        found.missing[f"ratios/{OURS}"] = "pyspark is not installed (tools/bootstrap --spark)"
        print(found.missing, file=sys.stderr)
        found.write(args)
        return
    from bench.spark import ratios, scaling
    mib, reps = ((64, 32), 1) if args.quick else ((1024, 512), 3)
    args.dir.mkdir(parents=True, exist_ok=True)
    measured = ratios.run(args.dir, mib[0], reps)
    scaled = scaling.run(args.dir, mib[1], min(reps, 2))
    ratios.tell(measured)
    found.add("ratios", OURS, measured["found"])
    for name, figures in scaled["found"].items():
        found.add(f"scaling: {name}", OURS, figures)
    found.write(args, goals=goals_of(measured))


if __name__ == "__main__":
    main()

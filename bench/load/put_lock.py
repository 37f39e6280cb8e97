"""Which put lock: mutex or spin, and would an adaptive one be better? 1, 4 and 16 producers, in turns.

First native threads that do nothing but copy under the lock (put_lock.c), where the kinds differ most; then real puts,
asynchronous and synchronous. Below 32 KiB a put keeps the GIL while it holds the lock, so hardly anybody waits for it; larger
bodies are copied without the GIL and producers meet at the lock: so both sizes. The rate says what a kind is worth, CPU a
message what it costs.

    python -m bench.load.put_lock --dir DIR --out bench/results/put-lock.json
"""
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser
from rmq_store.bench import figures
from rmq_store.bench.case import Case
from rmq_store.bench.disks import Place
from rmq_store.bench.runner import interruptible, run_all, scratch

ROOT = Path(__file__).parents[2]
PRODUCERS = (1, 4, 16)
COPIES = (256, 4096, 32_768, 65_536)
BODIES = (100, 65_536)

Row = dict[str, Any]


def native(base: Path, rounds: int, ms: int) -> list[Row]:
    """put_lock.c for each size and number of threads: medians, and the best round, as others may be at work."""
    program = base / "put_lock"
    subprocess.run(["cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/native/include", "-pthread", "-o",
                    program, Path(__file__).with_suffix(".c")], check=True)
    rows = []
    for size in COPIES:
        for n in PRODUCERS:
            out = subprocess.check_output([program, str(ms), str(rounds), str(size), str(n)], text=True)
            found: dict[str, list[tuple[float, float]]] = {}
            for line in out.splitlines():
                kind, rate, cpu = line.split()
                found.setdefault(kind, []).append((float(rate), float(cpu)))
            rows += [{"what": f"copies of {size} B", "producers": n, "lock": kind,
                      "rate_per_s": statistics.median(r for r, _ in runs), "best_per_s": max(r for r, _ in runs),
                      "cpu_ns_per_msg": round(1e3 * statistics.median(c for _, c in runs), 1)} for kind, runs in found.items()]
    return rows


def puts(place: Path, reps: int, **settings: Any) -> list[Row]:
    """Real puts over the pool, by the two kinds that there are."""
    cases = [Case(workload, write_path="pool", body=body, producers=n, segment_mib=256,
                  **{"seconds": 0.6, "cap_mib": 700, "options": {"put_lock": kind}, **settings}).complete()
             for workload in ("put_threads", "put_sync_threads") for body in BODIES for n in PRODUCERS
             for kind in ("mutex", "spin")]
    with interruptible():
        results = run_all([(c, Place(place)) for c in cases], reps, lambda text: print(text, file=sys.stderr, flush=True))
    rows = []
    for case, result in zip(cases, results, strict=True):
        found = figures.medians(result["runs"])
        rows.append({"what": f"{case.flush_mode} puts of {case.body} B", "producers": case.producers,
                     "lock": case.options["put_lock"], "rate_per_s": found.get("msgs_per_s"),
                     "best_per_s": max((r["msgs_per_s"] for r in result["runs"]), default=None),
                     "cpu_ns_per_msg": found.get("cpu_ns_per_msg"), "foreign": found.get("foreign"),
                     "missing": result.get("skipped") or result.get("error")})
    return rows


def table(rows: Iterable[Row]) -> str:
    """For people; the last column is the median rate beside the mutex's."""
    lines = [f"{'':28}{'producers':>10}{'lock':>10}{'a second':>14}{'best':>14}{'CPU ns':>9}{'x mutex':>9}"]
    mutex = 0.0
    for r in rows:
        head = f"{r['what']:28}{r['producers']:>10}{r['lock']:>10}"
        if r["rate_per_s"] is None:
            lines.append(f"{head}  {r['missing']}")
            continue
        mutex = r["rate_per_s"] if r["lock"] == "mutex" else mutex
        ratio = f"{r['rate_per_s'] / mutex:.2f}" if mutex else "-"
        lines.append(f"{head}{r['rate_per_s']:>14,.0f}{r['best_per_s']:>14,.0f}{r['cpu_ns_per_msg']:>9.0f}{ratio:>9}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, reps=3, rounds=15, round_ms=30)
    args = p.parse_args(argv)
    with scratch(args.dir) as base:
        if args.quick:
            rows = native(base, 1, 10) + puts(base, 1, seconds=0.02, cap_mib=16)
        else:
            rows = native(base, args.rounds, args.round_ms) + puts(base, args.reps)
    print(table(rows))
    keep(args, rows, lambda r: (f"put_lock: {r['what']}, {r['producers']} producers", r["lock"]))


if __name__ == "__main__":
    main()

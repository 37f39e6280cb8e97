"""What each of io_uring's means is worth, one after the other: for a stream of large writes, and for one durable page.

"io_uring for High-Performance DBMSs" (arXiv 2512.04859) finds that a ring in the place of system calls gains nothing, and
what does; this asks the same here (uring_steps.c), beside pwrite. The file is written before, so that no extent is new. CPU is
that of all threads, the kernel's of the ring included. Steps take turns; medians are shown.

    python -m bench.load.uring_steps --dir DIR --out bench/results/uring-steps.json
"""
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from bench.load.driver import keep, parser
from rmq_store.bench.peers import make_file
from rmq_store.bench.runner import scratch

DEPTH = 8
STREAM, PAGE = "a stream of 1 MiB writes, synced once", "one durable page of 4 KiB"


class Step(NamedTuple):
    """MEANS and DEPTH as uring_steps.c takes them."""

    kind: str
    text: str
    means: str
    depth: int = 1


STEPS = (
    Step(STREAM, "pwrite, page cache", "p"),
    Step(STREAM, "io_uring in its place, one at a time", ""),
    Step(STREAM, "+ registered buffers", "b"),
    Step(STREAM, "+ registered file", "bf"),
    Step(STREAM, "+ SINGLE_ISSUER, DEFER_TASKRUN", "bft"),
    Step(STREAM, "+ O_DIRECT", "bftd"),
    Step(STREAM, f"+ {DEPTH} in flight", "bftd", DEPTH),
    Step(STREAM, "SQPOLL instead of DEFER_TASKRUN", "bfdq", DEPTH),
    Step(PAGE, "pwrite, then fdatasync", "ps"),
    Step(PAGE, "io_uring: write, then fdatasync", "s"),
    Step(PAGE, "+ registered buffers and file, DEFER_TASKRUN", "bfts"),
    Step(PAGE, "+ write and fdatasync linked", "bftl"),
    Step(PAGE, "+ O_DIRECT", "bftdl"),
    Step(PAGE, "RWF_DSYNC instead of the link", "bftdy"),
    Step(PAGE, "SQPOLL instead of DEFER_TASKRUN", "bfdyq"),
)

Row = dict[str, Any]


def measured(base: Path, reps: int, stream_mib: int, pages: int) -> list[Row]:
    """One row a step. A step that the kernel or the file system refuses says so."""
    program, file = base / "uring_steps", base / "file"
    subprocess.run(["cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program,
                    Path(__file__).with_suffix(".c"), "-luring"], check=True)
    fd = make_file(file, "prezeroed", max(stream_mib << 20, pages * 4096))
    found: list[list[tuple[float, ...]]] = [[] for _ in STEPS]
    refused = [""] * len(STEPS)
    for _ in range(reps):
        for i, step in enumerate(STEPS):
            block, count = (1 << 20, stream_mib) if step.kind == STREAM else (4096, pages)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)      # direct writes leave it so: the same for everybody
            done = subprocess.run([program, file, str(block), str(count), str(step.depth), step.means], capture_output=True,
                                  text=True, check=False)
            if done.returncode:
                refused[i] = done.stderr.strip()
            else:
                found[i].append(tuple(float(n) for n in done.stdout.split()))
    os.close(fd)
    rows = []
    for step, runs, why in zip(STEPS, found, refused, strict=True):
        row: Row = {"kind": step.kind, "step": step.text, "means": step.means, "depth": step.depth}
        if why or not runs:
            rows.append({**row, "missing": why})
            continue
        secs, cpu, median, high = (statistics.median(run[n] for run in runs) for n in range(4))
        count = stream_mib if step.kind == STREAM else pages
        rows.append({**row, "secs": secs, "cpu_secs": cpu, "p50_us": median / 1e3, "p99_us": high / 1e3,
                     "mib_per_s": round((count if step.kind == STREAM else count / 256) / secs, 2),
                     "cpu_us_per_write": round(cpu * 1e6 / count, 2)})
    return rows


def table(rows: list[Row]) -> str:
    lines, kind = [], ""
    for r in rows:
        if r["kind"] != kind:
            kind = r["kind"]
            lines.append(f"{kind:48}{'MiB/s':>10}{'p50 µs':>10}{'p99 µs':>10}{'CPU µs/write':>14}")
        lines.append(f"  {r['step']:46}" + (r["missing"] if "missing" in r else
                     f"{r['mib_per_s']:>10,.1f}{r['p50_us']:>10.1f}{r['p99_us']:>10.1f}{r['cpu_us_per_write']:>14.2f}"))
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, reps=5, stream_mib=512, pages=2000)
    args = p.parse_args(argv)
    with scratch(args.dir) as base:
        rows = measured(base, 1, 16, 20) if args.quick else measured(base, args.reps, args.stream_mib, args.pages)
    print(table(rows))
    keep(args, rows, lambda r: (f"uring: {r['kind']}", r["step"]))


if __name__ == "__main__":
    main()

"""One synchronous put beside the bare system calls: rounds of puts in turns with a C loop of pwrite + fdatasync.

Both in the same pre-zeroed file (bare_sync.c): the store's rounds append at its end; the bare rounds write zeros into the zeros
far behind it.

    python -m bench.load.bare --body 1024 --write-path mmap
"""
import argparse
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import messages
from rmq_store.bench.runner import scratch

HERE = Path(__file__).parent
FILE_SIZE = 256 << 20


def single(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    """Rounds of puts and of the bare loop, alternating."""
    program = base / "bare_sync"
    subprocess.run(["cc", "-O2", "-Wall", "-o", program, HERE / "bare_sync.c"], check=True)
    clock, ours, bare = time.perf_counter_ns, [], []
    with MessageStore.open(base / "store", flush_mode="sync", write_path=args.write_path, flush_backend=args.flush_backend,
                           segment_size_bytes=FILE_SIZE, segment_prezero="full") as store:
        size = messages.record_size(store, "lean", args.body)
        file = base / "store" / "commitlog" / f"{0:020d}"
        put, body = store.put, bytes(args.body)
        for i in range(args.rounds):
            durations = []
            for _ in range(args.round):
                before = clock()
                put(messages.TOPIC, body)
                durations.append(clock() - before)
            ours.append(durations)
            at = FILE_SIZE // 2 + i * args.round * size
            command = [str(program), str(file), str(at), str(size), str(args.round)]
            bare.append([int(line) for line in subprocess.check_output(command, text=True).split()])
    mine, theirs = (Histogram(n for r in rounds for n in r) for rounds in (ours, bare))
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(ours, bare, strict=True)]
    return {"record_bytes": size, **mine.figures(), **{"bare_" + k: v for k, v in theirs.figures().items()},
            # exact medians: a bucket of the histogram is 1.6 % wide
            "median_us": statistics.median(n for r in ours for n in r) / 1e3,
            "bare_median_us": statistics.median(n for r in bare for n in r) / 1e3,
            "ratio": round(statistics.median(ratios), 4), "ratio_min": round(min(ratios), 4),
            "ratio_max": round(max(ratios), 4)}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, write_path="mmap", flush_backend="auto", body=1024, rounds=20, round=300)
    args = p.parse_args(argv)
    if args.quick:
        args.rounds, args.round = 2, 10
    with scratch(args.dir) as base:
        row = {"bench": "bare", "write_path": args.write_path, "flush_backend": args.flush_backend, "body": args.body,
               **single(args, base)}
    report(row)
    keep(args, [{"subject": "rmq_store", **{k: v for k, v in row.items() if not k.startswith("bare_")}},
                {"subject": "bare", **{k[5:]: v for k, v in row.items() if k.startswith("bare_")}}],
         lambda r: (f"sync_single_{args.write_path}", r["subject"]), [row])


if __name__ == "__main__":
    main()

"""The rate over time of one producer at full speed: puts in each slice of 50 ms, and each slice's longest call.

1 KiB, asynchronous flush, for --seconds on each write path. A pause is a slice without puts, so the picture shows what
quantiles hide: when the store waits for the device, and for how long.

    python -m bench.figures.overtime --dir DIR --out FILE
"""
import argparse
import json
import time
from pathlib import Path
from typing import Any

from rmq_store import MessageStore, errors
from rmq_store.bench.runner import scratch, settle

SLICE_NS = 50_000_000
BODY = bytes(1024)
SEGMENT = 256 << 20
# case -> options of the store
PATHS: dict[str, dict[str, Any]] = {
    "mmap": {"write_path": "mmap"},
    "pool": {"write_path": "pool"},
    "pool, io_uring": {"write_path": "pool", "flush_backend": "io_uring"},
}


def one(path: Path, options: dict[str, Any], seconds: float) -> dict[str, Any]:
    """`slices`: puts in each slice of SLICE_NS; `longest_us`: its longest call, which counts where it began."""
    clock = time.perf_counter_ns
    puts, longest = [0] * (int(seconds * 1e9) // SLICE_NS), [0] * (int(seconds * 1e9) // SLICE_NS)
    with MessageStore.open(path, segment_size_bytes=SEGMENT, **options) as store:
        put, count = store.put, 0
        for _ in range(1000):
            put("bench", BODY)
        begin = before = clock()
        while (at := (before - begin) // SLICE_NS) < len(puts):
            put("bench", BODY)
            after = clock()
            puts[at] += 1
            if after - before > longest[at]:
                longest[at] = after - before
            before = after
            count += 1
        store.flush()
        store.wait_dispatched()
        secs = (clock() - begin) / 1e9
    return {"msgs": count, "secs": round(secs, 3), "sustained_per_s": round(count / secs), "slice_ms": SLICE_NS / 1e6,
            "max_us": max(longest) / 1e3, "slices": puts, "longest_us": [round(n / 1e3, 1) for n in longest]}


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs")
    p.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    p.add_argument("--seconds", type=float, default=6.0)
    p.add_argument("--quick", action="store_true", help="half a second: shows that it runs, measures nothing")
    args = p.parse_args(argv)
    runs: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, options in PATHS.items():
        if not args.quick:
            settle()
        with scratch(args.dir) as base:
            try:
                runs[name] = {"rmq_store": [one(base / "store", options, 0.5 if args.quick else args.seconds)]}
            except errors.BackendUnavailable as why:
                missing[f"{name}/rmq_store"] = str(why)
    args.out.write_text(json.dumps({"runs": runs, "missing": missing, "failed": {}}) + "\n")


if __name__ == "__main__":
    main()

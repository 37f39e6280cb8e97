"""What a store costs a test (profile "test", as the fixture of rmq_store.pytest_plugin has it): ms to open a new one, until its
first message is read, and to close it; bytes of disk.

    python -m bench.load.small_stores --dir DIR --out bench/results/small-stores.json
"""
import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench.runner import scratch

WAYS = [(write_path, flush_mode) for write_path in ("mmap", "pool") for flush_mode in ("async", "sync")]


def allocated(directory: Path) -> int:
    """Bytes of disk that the files below have."""
    return sum(os.lstat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(directory) for name in names)


def one(path: Path, **options: Any) -> dict[str, float]:
    """The life of one store."""
    begun = time.perf_counter()
    store = MessageStore.open(path, profile="test", _environment={}, **options)
    opened = time.perf_counter()
    store.put("orders", b"12 EUR", tags="paid", keys="order-7")
    store.wait_dispatched(timeout=60)
    for message in store.get("orders", 0, 0):
        bytes(message.body)
    read = time.perf_counter()
    disk = allocated(path)
    closing = time.perf_counter()
    store.close()
    closed = time.perf_counter()
    return {"open_ms": 1e3 * (opened - begun), "first_message_ms": 1e3 * (read - opened), "close_ms": 1e3 * (closed - closing),
            "disk_bytes": disk}


def main(argv: list[str] | None = None) -> None:
    args: argparse.Namespace = parser(__doc__, stores=200).parse_args(argv)
    count = 3 if args.quick else args.stores
    lives: dict[tuple[str, str], list[dict[str, float]]] = {way: [] for way in WAYS}
    with scratch(args.dir) as base:
        for n in range(count + 1):
            for write_path, flush_mode in WAYS:
                life = one(base / f"{write_path}-{flush_mode}-{n}", write_path=write_path, flush_mode=flush_mode)
                if n > 0:           # the first one imports
                    lives[write_path, flush_mode].append(life)
    rows = []
    for (write_path, flush_mode), all_of_it in lives.items():
        row: dict[str, Any] = {"bench": "small_stores", "write_path": write_path, "flush_mode": flush_mode, "stores": count,
                               "disk_bytes": int(max(life["disk_bytes"] for life in all_of_it))}
        for what in ("open_ms", "first_message_ms", "close_ms"):
            took = sorted(life[what] for life in all_of_it)
            row[what] = {"median": round(statistics.median(took), 2), "p90": round(took[len(took) * 9 // 10], 2),
                         "least": round(took[0], 2)}
        rows.append(row)
        report(row)
    keep(args, rows, lambda r: (f"small_store_{r['flush_mode']}", r["write_path"]))


if __name__ == "__main__":
    main()

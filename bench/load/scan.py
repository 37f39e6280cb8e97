"""The raw log walked in C, all in the page cache: record by record without looking at bodies, and with every body's checksum.

The second is the scan of recovery. Both are the function that recovery uses, called on an open, read-only store.

    python -m bench.load.scan --mib 1000 --body 1024
"""
import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from bench import workload
from rmq_store import MessageStore

GIB = 1 << 30


def _write(path: Path, args: argparse.Namespace) -> None:
    with MessageStore.open(path) as store:
        workload.write(store, args.props, args.body, (args.mib << 20) // workload.record_size(store, args.props, args.body))
        workload.drain(store)


def _scan(path: Path, check_crc: bool) -> tuple[float, int, int]:
    """Seconds, bytes and records of one walk over all files."""
    with MessageStore.open(path, readonly=True) as store:
        log = store._recovery()
        start, size, records = time.perf_counter(), 0, 0
        for file in log.starts():
            found = log.scan(file, limit=1 << 62, check_crc=check_crc, crc_property=False)
            size += found.end - file
            records += found.records
        return time.perf_counter() - start, size, records


def run(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    _write(path, args)
    figures: dict[str, Any] = {}
    for name, check in (("plain", False), ("crc", True)):
        _scan(path, check)      # maps and touches every page once
        runs = [_scan(path, check) for _ in range(args.reps)]
        seconds, (_, size, records) = statistics.median(r[0] for r in runs), runs[0]
        figures[name + "_gib_per_s"] = round(size / GIB / seconds, 2)
        figures[name + "_ms_per_gib"] = round(seconds * 1e3 * GIB / size, 1)
        figures |= {"bytes": size, "records": records}
    return figures


def main(argv: list[str] | None = None) -> None:
    p = workload.parser(__doc__, mib=1000, body=1024, props="full", reps=5)
    args = p.parse_args(argv)
    if args.smoke:
        args.mib, args.reps = 8, 1
    with workload.scratch(args.dir) as base:
        workload.report({"bench": "scan", "mib": args.mib, "body": args.body, "props": args.props, **run(args, base / "store")})


if __name__ == "__main__":
    main()

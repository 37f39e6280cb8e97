"""From a send until the answer of a pull that was held for it: a broker of this library, and the real one beside it, in turns.

One thread of another process sends and pulls over two connections, one message at a time (net_held.c), so the time has two
wake-ups in it that no broker can save: its own and the client's. The real broker needs java; without it the row says why.

    python -m bench.load.held --dir DIR --rounds 3000 --reps 3 --out bench/results/held.json
"""
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.load.brokers import NotHere, compiled, real
from bench.load.driver import keep, parser, report
from bench.load.subjects import REAL
from rmq_store import Broker
from rmq_store.bench.runner import scratch

TOPIC, BODY = "T", 1024

@contextmanager
def ours(path: Path, **options: Any) -> Iterator[str]:
    with Broker.open(path, namesrv_listen=None, segment_size_bytes=64 << 20, **options) as broker:
        yield broker.address


@contextmanager
def _real(path: Path, version: str) -> Iterator[str]:
    with real(path, version) as broker:
        yield broker.address


def measure(program: Path, address: str, rounds: int, pause_us: int) -> dict[str, Any]:
    host, port = address.rsplit(":", 1)
    for count in (rounds // 10, rounds):        # the first ones warm both sides up
        out = subprocess.check_output([program, host, port, TOPIC, str(max(count, 1)), str(pause_us), str(BODY)], text=True)
    figures: dict[str, Any] = json.loads(out)
    return figures


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, rounds=3000, reps=3, pause_us=500)
    p.add_argument("--no-real", action="store_true", help="do not start the real broker")
    args = p.parse_args(argv)
    if args.quick:
        args.rounds, args.reps = 50, 1
    subjects: dict[str, Any] = {
        "mmap": lambda path: ours(path, write_path="mmap"),
        "mmap-sync": lambda path: ours(path, write_path="mmap", flush_mode="sync"),
        "pool": lambda path: ours(path, write_path="pool", commit_interval_max_ms=0)}
    if not args.no_real:
        subjects |= {name: lambda path, version=version: _real(path, version) for name, version in REAL.items()}
    rows = []
    with scratch(args.dir) as base:
        program = compiled(base, "net_held")
        for rep in range(args.reps):
            for name, opened in subjects.items():
                row: dict[str, Any] = {"bench": "held", "subject": name, "rep": rep}
                try:
                    with opened(Path(base) / f"{name}-{rep}") as address:
                        row |= measure(program, address, args.rounds, args.pause_us)
                except NotHere as error:
                    row["missing"] = str(error)
                rows.append(row)
                report(row)
    keep(args, rows, lambda r: ("held", r["subject"]))


if __name__ == "__main__":
    main()

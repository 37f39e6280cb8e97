"""Does a service that keeps the GIL for 50 ms delay a flush? Puts without waiting, sleeps with the GIL held, looks.

The sleep is a call into libc through ctypes.PyDLL, which does not give the GIL up, and the switch interval is set so long that
no other thread can have it in between: had the flush needed the GIL, the position could not have moved when we look.

    python -m bench.load.gil
"""
import argparse
import ctypes
import sys
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench import messages
from rmq_store.bench.runner import scratch

HOLD_MS = 50


def run(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    usleep = ctypes.PyDLL(None).usleep
    missed, held = 0, []
    interval = sys.getswitchinterval()
    with MessageStore.open(base / "store", flush_mode="sync", write_path=args.write_path) as store:
        store.put(messages.TOPIC, bytes(100))
        sys.setswitchinterval(100)
        try:
            for i in range(args.rounds):
                start = time.perf_counter()
                result = store.put(messages.TOPIC, bytes(100), queue_id=i & 3, wait=False)
                usleep(HOLD_MS * 1000)
                missed += store.stats()["flushed"] < result.offset + result.size
                held.append(time.perf_counter() - start)
        finally:
            sys.setswitchinterval(interval)
    return {"rounds": args.rounds, "held_ms_min": round(min(held) * 1e3, 1), "not_flushed": missed}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, write_path="pool", rounds=40)
    args = p.parse_args(argv)
    if args.quick:
        args.rounds = 3
    with scratch(args.dir) as base:
        row = {"bench": "gil", "write_path": args.write_path, "hold_ms": HOLD_MS, **run(args, base)}
    report(row)
    keep(args, [row], lambda r: ("gil", r["write_path"]))


if __name__ == "__main__":
    main()

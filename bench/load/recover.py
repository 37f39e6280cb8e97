"""How long an open takes: after a clean close, after a kill, with the queues lost; dispatch alone; the scan alone.

A child process writes --mib of log and is killed once all is dispatched and flushed. Before each dirty open the checkpoint is
removed, so that recovery starts at the first file, as in the Java harness. `rewrite_ms` is what writing and syncing 64 MiB
costs on this disk without any store: recovery must do that with the end of a dirty log before it serves anything.

    python -m bench.load.recover --mib 1000 --body 1024 --props full
"""
import argparse
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from bench import workload
from bench.children import in_child, killed
from rmq_store import MessageStore

REWRITE = 64 << 20


def _build(path: Path, args: argparse.Namespace) -> None:
    def write() -> None:
        store = MessageStore.open(path)
        workload.write(store, args.props, args.body, (args.mib << 20) // workload.record_size(store, args.props, args.body))
        workload.drain(store)
    killed(write)


def _prepare(path: Path, kind: str) -> None:
    if kind == "clean":
        (path / "abort").unlink(missing_ok=True)
    else:
        (path / "checkpoint").unlink(missing_ok=True)
    if kind.startswith("dirty"):
        (path / "abort").touch()
    if kind.endswith("queues_lost"):
        shutil.rmtree(path / "consumequeue")
        shutil.rmtree(path / "index", ignore_errors=True)
    os.sync()


def _open(path: Path) -> dict[str, Any]:
    start = time.perf_counter()
    store = MessageStore.open(path)
    opened = time.perf_counter()
    store.wait_dispatched(300)
    ready = time.perf_counter()
    store.close()
    return {"open_ms": (opened - start) * 1e3, "ready_ms": (ready - start) * 1e3}


def _rewrite_ms(path: Path) -> float:
    block = bytes(1 << 20)
    with open(path, "wb") as f:
        for _ in range(2):       # the second time over written blocks, as recovery does
            f.seek(0)
            start = time.perf_counter()
            f.writelines(block for _ in range(REWRITE >> 20))
            f.flush()
            os.fdatasync(f.fileno())
    path.unlink()
    return (time.perf_counter() - start) * 1e3


def run(args: argparse.Namespace, base: Path) -> None:
    path = base / "store"
    _build(path, args)
    for kind in ("dirty", "clean", "clean_queues_lost", "dirty_queues_lost"):
        opens = []
        for _ in range(args.reps):
            _prepare(path, kind)
            opens.append(in_child(lambda: _open(path)))
        figures = {k: round(statistics.median(o[k] for o in opens), 1) for k in ("open_ms", "ready_ms")}
        workload.report({"bench": "recover", "kind": kind, "mib": args.mib, "body": args.body, "props": args.props,
                         "reps": args.reps, "rewrite_ms": round(_rewrite_ms(base / "rewrite"), 1), **figures})


def main(argv: list[str] | None = None) -> None:
    p = workload.parser(__doc__, mib=1000, body=1024, props="full", reps=3)
    args = p.parse_args(argv)
    if args.smoke:
        args.mib, args.reps = 8, 1
    with workload.scratch(args.dir) as base:
        run(args, base)


if __name__ == "__main__":
    main()

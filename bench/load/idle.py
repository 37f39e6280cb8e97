"""What an open store costs that does nothing: private memory with much in it, and the time to open very many queues.

Private memory is anonymous memory and the pool (Pss_Anon and Pss_Shmem of smaps_rollup), taken after the open less before it.
Pages of mapped files belong to the page cache; how many of them are mapped is told beside it (mapped_mib).

    python -m bench.load.idle --queues 10000 --mib 1000
"""
import re
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench import messages
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch


def _memory_mib() -> tuple[float, float]:
    """(private, mapped pages of files)"""
    found = dict(re.findall(r"^Pss_(\w+):\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE))
    return (int(found["Anon"]) + int(found["Shmem"])) / 1024, int(found["File"]) / 1024


def _many_queues(path: Path, queues: int) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        for i in range(queues):
            store.put(f"Topic{i // 8}", b"one message", queue_id=i % 8)
        return {"drain_ms": messages.drain(store)}


def _much_log(path: Path, mib: int) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        messages.write(store, "full", 1024, (mib << 20) // messages.record_size(store, "full", 1024))
        return {"drain_ms": messages.drain(store)}


def _open(path: Path, write_path: str) -> dict[str, Any]:
    (private_before, mapped_before), start = _memory_mib(), time.perf_counter()
    store = MessageStore.open(path, write_path=write_path)
    took = time.perf_counter() - start
    after, mapped = _memory_mib()
    private, pool = after - private_before, store.stats()["pool_bytes"] / (1 << 20)
    figures = {"open_ms": round(took * 1e3, 1), "private_mib": round(private, 1), "pool_mib": pool,
               "beyond_pool_mib": round(private - pool, 1), "mapped_mib": round(mapped - mapped_before, 1)}
    store.close()
    return figures


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, queues=10_000, mib=1000)
    args = p.parse_args(argv)
    if args.quick:
        args.queues, args.mib = 200, 8
    rows: list[dict[str, Any]] = []
    for held, fill, size in (("queues", _many_queues, args.queues), ("mib", _much_log, args.mib)):
        with scratch(args.dir) as base:
            in_child(fill, base / "store", size)
            for write_path in ("mmap", "pool"):
                figures = in_child(_open, base / "store", write_path)
                rows.append({"bench": "idle", "write_path": write_path, held: size, **figures})
                report(rows[-1])
    keep(args, rows, lambda r: ("idle_queues" if "queues" in r else "idle_log", r["write_path"]))


if __name__ == "__main__":
    main()

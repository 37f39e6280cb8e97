"""What a compaction topic costs: to feed its compaction log, to compact it, to find a key in it; what puts notice of the job.

--count messages of --body bytes with --keys keys go into one queue, behind a fifth as many that are alone with their keys.
`feed_mb_s` and `feed_cpu_ns` are of the feeder, which copies flushed messages into the compaction log: bytes of records a
second, and processor time a message. `compact_cpu_mb_s` is what a compaction reads in a second of processor time,
`compact_mb_s` in a second on the clock: the job rests as long as it works. `cpu_ns` is its processor time for each message
that it reads. `find_ms` is one query_key for the oldest key of the compaction log, after the log of the store was cleaned; it
reads that log from its end. Then one thread puts messages of 100 bytes into another topic while a compaction runs (`put_ns`,
`pause_us`), and as long without one (`put_without_ns`, `pause_without_us`): the median put, and the longest. A machine on
which others work makes pauses of its own: look at `load_average`.

    python -m bench.load.compaction --count 1000000 --body 200
"""
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch

SIZES: dict[str, Any] = {"segment_size_bytes": 64 << 20, "compaction_file_size_bytes": 32 << 20,
                         "compaction_cq_file_size_bytes": 4 << 20}


def _fill(store: MessageStore, count: int, body: int, keys: int, name: str = "key") -> None:
    for i in range(0, count, 1000):
        store.put_many("C", [{"body": b"x" * body, "keys": f"{name}-{(i + k) * 7919 % keys}"}
                             for k in range(min(1000, count - i))])
    store.flush()
    store.wait_dispatched()


def _open(path: Path, keyed: bool = True) -> MessageStore:
    store = MessageStore.open(path, _services=False, **SIZES)
    if keyed:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
    return store


def _job(path: Path, count: int, body: int, keys: int) -> dict[str, Any]:
    with _open(path) as store:
        _fill(store, count // 5, body, count // 5, "once")
        _fill(store, count, body, keys)
        wall, cpu = time.perf_counter(), time.thread_time()
        store._compactions.feed(store)
        fed_s, fed_cpu = time.perf_counter() - wall, time.thread_time() - cpu
        (state,) = store.compaction_states("C")
        wall, cpu = time.perf_counter(), time.thread_time()
        (done,) = store.compact("C")
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        row: dict[str, Any] = {
            "messages": done.messages, "kept": done.kept, "record_bytes": round(done.size / done.messages),
            "feed_mb_s": round(state.size / fed_s / 1e6, 1), "feed_cpu_ns": round(fed_cpu / state.messages * 1e9),
            "compact_mb_s": round(done.size / wall / 1e6, 1), "compact_cpu_mb_s": round(done.size / cpu / 1e6, 1),
            "cpu_ns": round(cpu / done.messages * 1e9)}
        store.clean(hours=0, pace_ms=0)
        if store._queues_of("C")[0][1] > 0:         # else all of it is in one file of the log, and in the index
            wall = time.perf_counter()
            assert [m.queue_offset for m in store.query_key("C", "once-0")] == [0]
            row |= {"find_ms": round((time.perf_counter() - wall) * 1e3, 1),
                    "searched_mb": round(store.compaction_states("C")[0].size / 1e6, 1)}
        return row


def _puts(store: MessageStore, done: threading.Event) -> list[float]:
    found = []
    while not done.is_set():
        before = time.perf_counter()
        store.put("U", b"x" * 100)
        found.append(time.perf_counter() - before)
        time.sleep(0.0001)      # what is asked is how long a put takes, not how many there can be
    return found


def _timed(store: MessageStore, work: Any) -> list[float]:
    done = threading.Event()

    def run() -> None:
        try:
            work()
        finally:
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    found = _puts(store, done)
    thread.join()
    return found


def _beside(path: Path, count: int, body: int, keys: int) -> dict[str, Any]:
    with _open(path) as store:
        _fill(store, count, body, keys)
        store._compactions.feed(store)
        store.flush()
        begun = time.perf_counter()
        beside = _timed(store, lambda: store.compact("C"))
        took = time.perf_counter() - begun
        store.flush()
        without = _timed(store, lambda: time.sleep(took))
        return {"job_s": round(took, 3), "put_ns": round(statistics.median(beside) * 1e9),
                "put_without_ns": round(statistics.median(without) * 1e9), "pause_us": round(max(beside) * 1e6),
                "pause_without_us": round(max(without) * 1e6), "load_average": round(os.getloadavg()[0], 1)}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, count=1_000_000, body=200, keys=50_000, rounds=3)
    args = p.parse_args(argv)
    if args.quick:
        args.count, args.body, args.keys, args.rounds = 250_000, 100, 1000, 1
    rows: list[dict[str, Any]] = []
    for n in range(args.rounds):
        for case, work in (("compaction", _job), ("put beside a compaction", _beside)):
            with scratch(args.dir) as base:
                row = {"case": case} | in_child(work, base / f"store{n}", args.count, args.body, args.keys)
            rows.append(row)
            report(row)
    keep(args, rows, lambda r: (str(r["case"]), "rmq_store"))


if __name__ == "__main__":
    main()

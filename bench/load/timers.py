"""Timer messages: what a million that wait cost, how late a full second is, and what puts notice of it.

`private_mib` and `open_ms` are those of a store with --pending messages that wait, opened again. Then --due messages are due in
one second, while another thread puts messages of 100 bytes for a few seconds around it: `late_ms` is when the last is in
its topic, counted from the end of their slot; `pause_ms` the longest put in these seconds, `pause_without_ms` the longest in as
many seconds before. A put of 100 bytes with a delay is beside one without.

    python -m bench.load.timers --pending 1000000 --due 100000
"""
import re
import threading
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch

HOURS = 24
SECONDS = 4


def _private_mib() -> float:
    found = dict(re.findall(r"^Pss_(\w+):\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE))
    return (int(found["Anon"]) + int(found["Shmem"])) / 1024


def _until(what: Any, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError("the timer does not get on")
        time.sleep(0.001)


def _fill(path: Path, pending: int) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        begun, now = time.perf_counter(), int(time.time() * 1000)
        for i in range(0, pending, 1000):
            store.put_many("T", [{"body": b"x" * 100, "deliver_at": now + 3_600_000 + (i + k) * 3_600_000 * HOURS // pending}
                                 for k in range(min(1000, pending - i))])
        put = time.perf_counter() - begun
        _until(lambda: store._timer is not None and store._timer.wheel.state()[0] == pending)
        return {"put_s": round(put, 2), "taken_s": round(time.perf_counter() - begun, 2)}


def _open(path: Path, pending: int) -> dict[str, Any]:
    before, begun = _private_mib(), time.perf_counter()
    store = MessageStore.open(path)
    took, private = time.perf_counter() - begun, _private_mib() - before
    timer = store._timer
    assert timer is not None and timer.wheel.state()[0] == pending
    store.close()
    files = [*(path / "timerlog").iterdir(), path / "timerwheel"]
    return {"open_ms": round(took * 1e3, 1), "private_mib": round(private, 1),
            "files_mib": round(sum(file.stat().st_blocks for file in files) * 512 / (1 << 20), 1)}


def _puts(store: MessageStore, until: float) -> float:
    """The longest put in seconds."""
    longest, before = 0.0, time.perf_counter()
    while before < until:
        store.put("U", b"x" * 100)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
        time.sleep(0.0001)      # what is asked is how long a put takes, not how many there can be
    return longest


def _burst(path: Path, due: int) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        at = (int(time.time()) + 5 + due // 20_000 + SECONDS) * 1000 + 500
        slot_ends = (at // 1000 + 1) * 1000
        for i in range(0, due, 1000):
            store.put_many("B", [b"x" * 100] * min(1000, due - i), deliver_at=at)
        timer = store._timer
        assert timer is not None
        delivered = timer.wheel.state()[1]
        _until(lambda: timer.wheel.count(at) == due)
        without = _puts(store, time.perf_counter() + SECONDS)
        late: list[float] = []

        def watch() -> None:
            _until(lambda: timer.wheel.state()[1] - delivered >= due)
            late.append(time.time() * 1000 - slot_ends)

        thread = threading.Thread(target=watch)
        thread.start()
        with_it = _puts(store, time.perf_counter() + max(0.0, slot_ends / 1000 - time.time()) + SECONDS)
        thread.join()
        return {"late_ms": round(late[0]), "pause_ms": round(with_it * 1e3, 2), "pause_without_ms": round(without * 1e3, 2)}


def _cost(path: Path, count: int) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        found = {}
        for name, more in (("put_ns", {}), ("put_with_properties_ns", {"properties": {"a": "b"}}),
                           ("put_delay_ns", {"delay": 3600})):
            begun = time.perf_counter()
            for _ in range(count):
                store.put("C", b"x" * 100, **more)      # type: ignore[arg-type]
            found[name] = round((time.perf_counter() - begun) / count * 1e9)
        return found


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, pending=1_000_000, due=100_000)
    args = p.parse_args(argv)
    if args.quick:
        args.pending, args.due = 20_000, 5000
    rows: list[dict[str, Any]] = []
    with scratch(args.dir) as base:
        row = {"case": "pending", "count": args.pending}
        row |= in_child(_fill, base / "store", args.pending)
        rows.append(row | in_child(_open, base / "store", args.pending))
        rows.append({"case": "due in one second", "count": args.due} | in_child(_burst, base / "burst", args.due))
        rows.append({"case": "cost of a put"} | in_child(_cost, base / "cost", 20_000))
    for row in rows:
        report(row)
    keep(args, rows, lambda r: ("timers", str(r["case"])))


if __name__ == "__main__":
    main()

"""Timer messages: what a million that wait cost, how late a full second is, and what puts notice of it.

`open_ms` and `private_mib` are those of a store with --pending messages that wait, opened again; `files_mib` is what bounds
them. In this store --due messages are then due in one second, --rounds times, while one thread puts messages of 100 bytes and
sleeps for 0.1 ms after each. `pause_us` is the longest put in the two seconds around the delivery, `pause_without_us` the
longest in two seconds just before; `ratio` is of the medians of the rounds. `late_ms` is when the last message is in the log,
counted from the end of its slot. Then a put of 100 bytes with a delay beside one without, and put_many with times beside
put_many without. A machine on which others work makes pauses of its own: look at `load_average`, and at the medians.

    python -m bench.load.timers --pending 1000000 --due 100000
"""
import os
import re
import statistics
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch

HOURS = 24
SECONDS = 2.0       # of each window


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


def _puts(store: MessageStore, seconds: float, delivered: int = 0) -> tuple[float, float]:
    """The longest put in seconds, and when so many messages were delivered, in seconds since 1970."""
    longest, end, at = 0.0, time.perf_counter() + seconds, 0.0
    while (before := time.perf_counter()) < end:
        store.put("U", b"x" * 100)
        longest = max(longest, time.perf_counter() - before)
        if delivered and not at and store._timer is not None and store._timer.wheel.state()[1] >= delivered:
            at = time.time()
        time.sleep(0.0001)      # what is asked is how long a put takes, not how many there can be
    return longest, at


def _due_at(store: MessageStore, due: int, at: int) -> None:
    for i in range(0, due, 1000):
        store.put_many("B", [b"x" * 100] * min(1000, due - i), deliver_at=at)


def _round(store: MessageStore, due: int, seconds_to_put: float) -> dict[str, Any]:
    at = int(time.time() + seconds_to_put + SECONDS + 3) * 1000 + 500
    slot_ends = at // 1000 + 1
    _due_at(store, due, at)
    timer = store._timer
    assert timer is not None
    _until(lambda: timer.wheel.count(at) == due)
    store.flush()
    if time.time() > slot_ends - SECONDS - 0.5:
        raise TimeoutError("this machine is too slow for so many in one second")
    before = timer.wheel.state()[1]
    without, _ = _puts(store, SECONDS)
    time.sleep(max(0.0, slot_ends - 0.2 - time.time()))
    with_it, done = _puts(store, SECONDS, before + due)
    while not done:
        done = _puts(store, SECONDS, before + due)[1]
    return {"late_ms": round((done - slot_ends) * 1e3), "pause_us": round(with_it * 1e6),
            "pause_without_us": round(without * 1e6), "load_average": round(os.getloadavg()[0], 1)}


def _bursts(path: Path, due: int, rounds: int) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        begun = time.perf_counter()
        _due_at(store, 2000, int(time.time() * 1000) + 3_600_000)
        took = (time.perf_counter() - begun) / 2000 * due
        found = [_round(store, due, 2 * took + 1) for _ in range(rounds)]
    row = {name: round(statistics.median(each[name] for each in found)) for name in found[0]}
    return row | {"late_max_ms": max(each["late_ms"] for each in found),
                  "ratio": round(row["pause_us"] / row["pause_without_us"], 2), "rounds": found}


def _cost(path: Path, count: int) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        found = {}
        for name, more in (("put_ns", {}), ("put_with_properties_ns", {"properties": {"a": "b"}}),
                           ("put_delay_ns", {"delay": 3600})):
            begun = time.perf_counter()
            for _ in range(count):
                store.put("C", b"x" * 100, **more)      # type: ignore[arg-type]
            found[name] = round((time.perf_counter() - begun) / count * 1e9)
        many = [b"x" * 100] * 1000
        for name, more in (("many_ns", {}), ("many_delay_ns", {"delay": 3600})):
            begun = time.perf_counter()
            for _ in range(count // 1000):
                store.put_many("C", many, **more)       # type: ignore[arg-type]
            found[name] = round((time.perf_counter() - begun) / (count // 1000 * 1000) * 1e9)
        return found


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, pending=1_000_000, due=100_000, rounds=5)
    args = p.parse_args(argv)
    if args.quick:
        args.pending, args.due, args.rounds = 20_000, 2000, 1
    rows: list[dict[str, Any]] = []
    with scratch(args.dir) as base:
        row = {"case": "pending", "count": args.pending}
        row |= in_child(_fill, base / "store", args.pending)
        rows.append(row | in_child(_open, base / "store", args.pending))
        rows.append({"case": "due in one second", "count": args.due} | in_child(_bursts, base / "store", args.due, args.rounds))
        rows.append({"case": "cost of a put"} | in_child(_cost, base / "cost", 20_000))
    for row in rows:
        report(row)
    keep(args, rows, lambda r: (str(r["case"]), "rmq_store"))


if __name__ == "__main__":
    main()

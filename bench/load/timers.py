"""Timer messages: what a million that wait cost, how late a full second is, and what puts notice of it.

`open_ms` and `private_mib` are those of a store with --pending messages that wait, opened again; `files_mib` is what bounds
them. In this store --due messages are then due in one second, --turns times, while one thread puts messages of 100 bytes and
sleeps for 0.1 ms after each. Each turn has a window without a delivery and one around it, of the same length. `pause_us` is the
longest put of a window, `p999_us` the one that 1 in 1,000 exceeds; `ratio` is of the medians of the turns, and the goal is 2.
`lock_waits` counts the appends of a window that found the put lock taken, `lock_us` is the longest wait of them, and `held_us`
the longest time that the lock was held (of one append in 64). `late_ms` is when the last message is in the log, counted from
the end of its slot. Then a put of 100 bytes with a delay beside one without, and put_many with times beside put_many without.

A machine on which others work makes pauses of its own. `others_percent` is what they took of the processors during the
windows; `settled` says whether that was so little that the ratio means something. This settles it, within three minutes:

    python -m bench.load.timers --pauses

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
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch

HOURS = 24
SECONDS = 1.5       # of each window
OTHERS_MAX = 10.0   # percent of all processors


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


def _others(before: tuple[float, float] | None = None) -> tuple[float, float]:
    """(seconds that processors worked, those of this process): since the machine started, or since `before`."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    now = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), time.process_time()
    return now if before is None else (now[0] - before[0], now[1] - before[1])


def _window(store: MessageStore, delivered: int = 0) -> tuple[dict[str, float], float]:
    """What puts took in SECONDS, and when so many messages were delivered, in seconds since 1970."""
    durations, at, before, working = Histogram(), 0.0, store.histograms(), _others()
    end = time.perf_counter() + SECONDS
    while (begun := time.perf_counter()) < end:
        store.put("U", b"x" * 100)
        durations.add(int((time.perf_counter() - begun) * 1e9))
        if delivered and not at and store._timer is not None and store._timer.wheel.state()[1] >= delivered:
            at = time.time()
        time.sleep(0.0001)      # what is asked is how long a put takes, not how many there can be
    lock, held = (store.histograms()[name].since(before[name]) for name in ("lock", "append"))
    worked, own = _others(working)
    return {"pause_us": durations.highest / 1e3, "p999_us": durations.quantile(0.999) / 1e3, "puts": durations.count,
            "lock_waits": lock.count, "lock_us": lock.highest / 1e3, "held_us": held.highest / 1e3,
            "others_percent": max(worked - own, 0.0) / SECONDS / (os.cpu_count() or 1) * 100}, at


def _due_at(store: MessageStore, due: int, at: int) -> None:
    for i in range(0, due, 1000):
        store.put_many("B", [b"x" * 100] * min(1000, due - i), deliver_at=at)


def _turn(store: MessageStore, due: int, seconds_to_put: float) -> dict[str, Any]:
    at = int(time.time() + seconds_to_put + SECONDS + 2) * 1000 + 500
    slot_ends = at // 1000 + 1
    _due_at(store, due, at)
    timer = store._timer
    assert timer is not None
    _until(lambda: timer.wheel.count(at) == due)
    store.flush()
    if time.time() > slot_ends - SECONDS - 0.5:
        raise TimeoutError("this machine is too slow for so many in one second")
    before = timer.wheel.state()[1]
    without, _ = _window(store)
    time.sleep(max(0.0, slot_ends - 0.2 - time.time()))
    beside, done = _window(store, before + due)
    while not done:
        done = _window(store, before + due)[1]
    return {"late_ms": round((done - slot_ends) * 1e3), "with": beside, "without": without}


def _bursts(path: Path, due: int, turns: int) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        begun = time.perf_counter()
        _due_at(store, 2000, int(time.time() * 1000) + 3_600_000)
        took = (time.perf_counter() - begun) / 2000 * due
        found = [_turn(store, due, 2 * took + 1) for _ in range(turns)]
    row: dict[str, Any] = {side: {name: round(statistics.median(turn[side][name] for turn in found), 1)
                                  for name in found[0][side]} for side in ("with", "without")}
    others = max(row[side]["others_percent"] for side in row)
    return row | {"ratio": round(row["with"]["pause_us"] / row["without"]["pause_us"], 2),
                  "p999_ratio": round(row["with"]["p999_us"] / row["without"]["p999_us"], 2),
                  "late_ms": statistics.median(turn["late_ms"] for turn in found),
                  "late_max_ms": max(turn["late_ms"] for turn in found), "settled": others <= OTHERS_MAX,
                  "pauses_us": [(round(turn["without"]["pause_us"]), round(turn["with"]["pause_us"])) for turn in found]}


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
    p = parser(__doc__, pending=1_000_000, due=100_000, turns=7)
    p.add_argument("--pauses", action="store_true", help="only what puts notice")
    args = p.parse_args(argv)
    if args.quick:
        args.pending, args.due, args.turns = 20_000, 2000, 1
    rows: list[dict[str, Any]] = []
    with scratch(args.dir) as base:
        row = {"case": "pending", "count": args.pending}
        row |= in_child(_fill, base / "store", args.pending)
        rows.append(row | in_child(_open, base / "store", args.pending))
        rows.append({"case": "due in one second", "count": args.due} | in_child(_bursts, base / "store", args.due, args.turns))
        if not args.pauses:
            rows.append({"case": "cost of a put"} | in_child(_cost, base / "cost", 20_000))
    for row in rows:
        report(row)
    keep(args, rows, lambda r: (str(r["case"]), "rmq_store"))


if __name__ == "__main__":
    main()

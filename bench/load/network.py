"""The broker's network thread under net_load.c: requests a second, round trips and processor time for each request.

Sends of 1 KiB and pulls of 32, one at a time and pipelined, then with a Python thread beside them that never rests, which must
not be seen: `other` are requests that Python answers, for comparison. The generator is one thread of another process, so on two
processors the two share what there is. At last the same sends and pulls with a signature each (aclEnable), which the generator
makes as well. The processor time is that of the server's threads, user and system, by name.

    python -m bench.load.network --dir DIR --out bench/results/network.json
"""
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.load.brokers import compiled
from bench.load.driver import keep, parser
from bench.load.others import repeated
from rmq_store import MessageStore
from rmq_store.bench.runner import scratch
from rmq_store.network._front import Front

TOPIC, QUEUES, BODY = "T", 8, 1024
# what, connections, window
LOADS = (("send", 1, 1), ("send", 16, 1), ("send", 16, 16), ("send", 64, 32), ("pull", 1, 1), ("pull", 16, 4), ("other", 1, 1))
SIGNED = (("send", 1, 1), ("send", 16, 16), ("pull", 16, 4))
KEY, SECRET = "benchmark", "of the network"
BESIDE_BUSY = (("send", 1, 1), ("send", 16, 16), ("pull", 1, 1), ("other", 1, 1))

Row = dict[str, Any]


def threads() -> dict[str, float]:
    """Seconds of processor time of this process's threads, by name."""
    found: dict[str, float] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            text = (task / "stat").read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
        found[name] = found.get(name, 0.0) + (int(rest[11]) + int(rest[12])) / 100
    return found


def run(program: Path, front: Front, what: str, connections: int, window: int, seconds: float, busy: bool = False,
        signed: bool = False) -> Row:
    before = threads()
    more = ("32", KEY, SECRET) if signed else ()
    out = subprocess.check_output([program, front.address[0], str(front.address[1]), what, str(connections), str(window),
                                   str(seconds), str(BODY), TOPIC, str(QUEUES), *more], text=True)
    row: Row = {"what": what, "connections": connections, "window": window, "busy_python": busy, "signed": signed,
                **json.loads(out)}
    after = threads()
    row["cpu_us"] = {name: round((after[name] - before.get(name, 0.0)) * 1e6 / max(row["requests"], 1), 2)
                     for name in sorted(after) if name.startswith("rmq-") and after[name] - before.get(name, 0.0) > 0.01}
    beside = " busy  " if busy else " signed" if signed else "       "
    print(f"{what:6} {connections:3} x {window:3}{beside} {row['per_s']:9,.0f}/s  p50 {row['p50_us']:6.0f}"
          f"  p99 {row['p99_us']:7.0f} µs  CPU {row['cpu_us']} µs", flush=True)
    return row


@contextmanager
def serving(store: MessageStore, **facts: object) -> Iterator[Front]:
    front = Front("127.0.0.1", 0, lambda _connection, frame: frame.answer(), lambda _connection: None)
    front.use(store, **facts)
    front.publish([(TOPIC, 6, QUEUES, QUEUES)], [("load", "", 0, ())])
    server = threading.Thread(target=front.serve)
    server.start()
    try:
        yield front
    finally:
        front.stop()
        server.join()


def measure(base: Path, seconds: float) -> list[Row]:
    program = compiled(base, "net_load")
    stop = threading.Event()

    def never_rests() -> None:
        while not stop.is_set():
            pass

    with scratch(base) as place, MessageStore.open(place / "store", write_path="pool") as store:
        with serving(store) as front:
            rows = [run(program, front, *load, seconds) for load in LOADS]
            busy = threading.Thread(target=never_rests)
            busy.start()
            try:
                rows += [run(program, front, *load, seconds, busy=True) for load in BESIDE_BUSY]
            finally:
                stop.set()
                busy.join()
        with serving(store, signed=True) as front:
            front.accounts(1, [(KEY.encode(), SECRET.encode())])
            front.fresh(1 << 62)
            front.grant(1, KEY, TOPIC, None)
            front.grant(1, KEY, TOPIC, "load")
            return rows + [run(program, front, *load, seconds, signed=True) for load in SIGNED]


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, seconds=2.0, reps=2)
    args = p.parse_args(argv)
    if args.quick:
        args.seconds, args.reps = 0.1, 1
    rows: list[Row] = []
    for _ in range(args.reps):
        with scratch(args.dir) as base:
            rows += repeated(partial(measure, base, args.seconds), again=not args.quick)
    keep(args, rows, lambda r: (f"{r['what']}_{r['connections']}x{r['window']}{'_busy' if r['busy_python'] else ''}"
                                f"{'_signed' if r['signed'] else ''}", "native"))


if __name__ == "__main__":
    main()

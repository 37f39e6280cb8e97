"""A broker of this library and the real ones, in turns, under the same load: net_load.c over loopback.

Sends of 1 KiB and pulls of 32 messages, over CONNECTIONS that have WINDOW requests under way each, all with JSON headers, which
every broker reads. The topic has 8 queues, the flush is asynchronous, a file of the log has 1 GiB on each side. Before anything
counts, each broker gets sends and pulls for --warm seconds, because a JVM compiles what it has run often, and before sends the
host lends the memory that they will fill (bench/load/lent.py). The pulls that count read these messages, and their log is in
the page cache on each side.

`per_s` are requests that were answered with success, `messages_per_s` the messages of pulls. `cpu_us` is the processor time of
all threads of the broker for one request, `generator_cpu_us` that of net_load.c, with which the broker shares the processors.
Case `rest`: `ready_ms` from exec on an empty directory until the broker answers a request, and `rss_mib` a second later. The
subject `rmq_store-pool` is this library with write_path=pool. `bare` is bare_answer.c: answers of the same size by a server
that stores nothing and looks nothing up. It says what loopback and net_load.c leave to a broker on these processors.

    python -m bench.load.broker --dir DIR --reps 2 --out bench/results/broker.json
"""
import json
import shutil
import socket
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.load import brokers
from bench.load.brokers import NotHere, Running
from bench.load.driver import keep, parser
from bench.load.lent import Lent
from bench.load.others import repeated
from bench.load.subjects import BARE, OURS, POOL, REAL
from rmq_store.bench.runner import scratch, settle
from rmq_store.remoting.frame import Frame, decode, encode

TOPIC, QUEUES, BODY = "T", 8, 1024
# what, connections, window
LOADS = (("pull", 1, 1), ("pull", 16, 4), ("send", 1, 1), ("send", 16, 16), ("send", 64, 32))
WARM = (("send", 16, 16), ("pull", 16, 4))
STARTS = 5              # of this library in a repetition; those of a real broker take seconds each
FILE = 1 << 30
MAX_OFFSET, QUEUED_S = 30, 60.0
BATCH, RECORD = 32, 1240        # messages of a pull, and bytes of one in the log
SEND_MIB = 1000                 # of page cache that a second of sends fills

Row = dict[str, Any]


def loaded(program: Path, broker: Running, what: str, connections: int, window: int, seconds: float) -> Row:
    """One load: what net_load.c saw, and the broker's processor time for each request."""
    host, port = broker.address.rsplit(":", 1)
    Lent(int(SEND_MIB * seconds) if what == "send" else 0).give_back()
    before = broker.cpu_s()
    out = subprocess.check_output([program, host, port, what, str(connections), str(window), str(seconds), str(BODY), TOPIC,
                                   str(QUEUES)], text=True)
    found: Row = json.loads(out)
    good = max(found["requests"] - found["bad"], 1)
    found["cpu_us"] = round((broker.cpu_s() - before) * 1e6 / good, 2)
    if what == "pull":
        found["messages_per_s"] = round(found["messages"] / found["seconds"])
        found["cpu_us_per_message"] = round(found["cpu_us"] * good / max(found["messages"], 1), 3)
    return found


def _opened(subject: str, path: Path) -> Any:
    if subject == BARE:
        return brokers.bare(brokers.compiled(path.parent, "bare_answer"), RECORD, BATCH, QUEUES)
    if subject in REAL:
        return brokers.real(path, REAL[subject], mappedFileSizeCommitLog=FILE)
    return brokers.ours(path, **({"write_path": "pool"} if subject == POOL else {}))


def _queued(broker: Running, sent: int) -> None:
    """Waits until the queues have so many messages: a pull of an empty queue would be answered by nothing."""
    host, port = broker.address.rsplit(":", 1)
    deadline = time.monotonic() + QUEUED_S
    with socket.create_connection((host, int(port)), timeout=QUEUED_S) as peer, peer.makefile("rb") as answers:
        while time.monotonic() < deadline:
            ends = 0
            for queue_id in range(QUEUES):
                peer.sendall(encode(Frame(MAX_OFFSET, queue_id, {"topic": TOPIC, "queueId": str(queue_id)})))
                size = answers.read(4)
                ends += int(decode(size + answers.read(int.from_bytes(size, "big"))).ext.get("offset", 0))
            if ends >= sent:
                return
            time.sleep(0.01)
    raise RuntimeError(f"{sent} messages are not in their queues after {QUEUED_S:.0f} s")


def _cached(log: Path) -> None:
    """Reads the log, so that pulls find it in the page cache: this library's pool writes past it, a map does not."""
    buffer = bytearray(1 << 20)
    for path in sorted(log.iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _rest(subject: str, base: Path, starts: int, pause_s: float) -> list[Row]:
    """Starts on empty directories, each a repetition."""
    rows = []
    for number in range(starts):
        with _opened(subject, base / f"rest{number}") as broker:
            time.sleep(pause_s)
            rows.append({"case": "rest", "subject": subject, "ready_ms": round(broker.ready_ms, 1),
                         "rss_mib": round(broker.rss_mib(), 1)})
    return rows


def one(program: Path, subject: str, base: Path, seconds: float, warm: float) -> list[Row]:
    """All loads of a subject, on one broker. Raises NotHere."""
    rows = []
    with _opened(subject, base / "store") as broker:
        sent = loaded(program, broker, *WARM[0], warm / 2)
        if subject != BARE:
            _queued(broker, sent["requests"] - sent["bad"])
            _cached(base / "store" / "commitlog")
        loaded(program, broker, *WARM[1], warm / 2)
        for what, connections, window in LOADS:
            row = {"case": f"{what}_{connections}x{window}", "subject": subject,
                   **loaded(program, broker, what, connections, window, seconds)}
            rows.append(row)
            print(f"{subject:14} {row['case']:12} {row['per_s']:9,.0f}/s  p50 {row['p50_us']:6.0f}  p99 {row['p99_us']:7.0f} µs"
                  f"  CPU {row['cpu_us']:6.2f} µs  generator {row['generator_cpu_us']:5.2f} µs  bad {row['bad']}", flush=True)
    shutil.rmtree(base / "store", ignore_errors=subject == BARE)
    return rows


def _repetition(program: Path, subject: str, base: Path, args: Any) -> list[Row]:
    with scratch(base) as place:
        starts = 0 if subject == BARE else STARTS if subject == OURS and not args.quick else 1
        return _rest(subject, place, starts, min(1.0, args.warm)) + one(program, subject, place, args.seconds, args.warm)


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, seconds=2.0, warm=4.0, reps=2, subjects=",".join((OURS, POOL, *REAL, BARE)))
    args = p.parse_args(argv)
    if args.quick:
        args.seconds, args.warm, args.reps = 0.1, 0.2, 1
    rows: list[Row] = []
    missing: dict[str, str] = {}
    with scratch(args.dir) as base:
        program = brokers.compiled(base, "net_load")
        for _ in range(args.reps):
            for subject in args.subjects.split(","):
                if subject in missing:
                    continue
                if not args.quick:
                    settle()
                try:
                    rows += repeated(partial(_repetition, program, subject, base, args), again=not args.quick)
                except NotHere as why:
                    missing[subject] = str(why)
    rows += [{"case": f"{what}_{connections}x{window}", "subject": subject, "missing": why}
             for subject, why in missing.items() for what, connections, window in LOADS]
    keep(args, rows, lambda r: (r["case"], r["subject"]))


if __name__ == "__main__":
    main()

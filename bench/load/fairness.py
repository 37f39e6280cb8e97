"""What one client that asks for too much costs another one: an honest client's sends alone, and beside each kind of hostile.py.

The honest client is net_load.c: sends of 1 KiB over 4 connections, one request at a time on each. First it is alone, then
beside one hostile connection. `share` is its rate beside that connection over its rate alone, `p99_us` the time of its
answers, `alone_` before both what they were without. `end_s` is how long the broker takes from SIGTERM to its end while the
hostile client is connected. Each kind has a broker of its own. A real broker (subject of the release) has so, too; its end is
not measured.

    python -m bench.load.fairness --dir DIR --out bench/results/fairness.json
"""
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.load import brokers
from bench.load.brokers import NotHere, Running
from bench.load.driver import keep, parser, report
from bench.load.hostile import KINDS, QUEUES, TOPIC
from bench.load.subjects import OURS, REAL
from rmq_store.bench.runner import scratch

CONNECTIONS, WINDOW, BODY = 4, 1, 1024
END_S = 60.0
RELEASE = "rocketmq-5.x"

Row = dict[str, Any]


def send(program: Path, broker: Running, seconds: float) -> Row:
    host, port = broker.address.rsplit(":", 1)
    out = subprocess.check_output([program, host, port, "send", str(CONNECTIONS), str(WINDOW), str(seconds), str(BODY), TOPIC,
                                   str(QUEUES)], text=True)
    found: Row = json.loads(out)
    return found


def alone_of(program: Path, broker: Running, seconds: float) -> Row:
    """The middle one of three: on two cores one run differs from the next by a fifth."""
    return sorted((send(program, broker, seconds) for _ in range(3)), key=lambda row: row["per_s"])[1]


@contextmanager
def beside(kind: str, broker: Running) -> Iterator[Row]:
    """The hostile client; what it did is in the row at the end."""
    host, port = broker.address.rsplit(":", 1)
    process = subprocess.Popen([sys.executable, "-m", "bench.load.hostile", kind, host, port], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, cwd=brokers.ROOT)
    did: Row = {}
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise NotHere(f"the hostile client {kind} was not served")
        yield did
        process.stdin.close()
        did |= json.loads(process.stdout.readline() or "{}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def one(program: Path, broker: Running, kind: str, alone: Row, seconds: float, pause_s: float, ends: bool) -> Row:
    with beside(kind, broker) as did:
        time.sleep(pause_s)
        found = send(program, broker, seconds)
        row = {"kind": kind, "per_s": found["per_s"], "p99_us": found["p99_us"], "bad": found["bad"],
               "share": round(found["per_s"] / max(alone["per_s"], 1), 3),
               "alone_per_s": alone["per_s"], "alone_p99_us": alone["p99_us"]}
        if ends:
            begun = time.monotonic()
            broker.process.terminate()
            broker.process.wait(END_S)
            row["end_s"] = round(time.monotonic() - begun, 3)
    return row | did


def of_ours(base: Path, program: Path, kinds: list[str], seconds: float, pause_s: float) -> Iterator[Row]:
    for kind in kinds:
        with scratch(base) as place, brokers.ours(place / "store") as broker:
            send(program, broker, seconds / 2)
            yield {"subject": OURS} | one(program, broker, kind, alone_of(program, broker, seconds), seconds, pause_s, True)


def of_real(base: Path, program: Path, kinds: list[str], seconds: float, pause_s: float) -> Iterator[Row]:
    for kind in kinds:
        try:
            with scratch(base) as place, brokers.real(place / "store", REAL[RELEASE]) as broker:
                for _ in range(2):      # a JVM compiles what it has run often
                    send(program, broker, 1.5)
                alone = alone_of(program, broker, seconds)
                yield {"subject": RELEASE} | one(program, broker, kind, alone, seconds, pause_s, False)
        except (NotHere, OSError, subprocess.SubprocessError) as why:
            yield {"subject": RELEASE, "kind": kind, "missing": str(why)}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, seconds=0.8, pause=0.5, kinds=",".join(KINDS))
    p.add_argument("--no-real", action="store_true", help="without the real broker")
    args = p.parse_args(argv)
    if args.quick:
        args.seconds, args.pause, args.no_real = 0.2, 0.1, True
    kinds = args.kinds.split(",")
    rows: list[Row] = []
    with scratch(args.dir) as base:
        program = brokers.compiled(base, "net_load")
        for subject in (of_ours, *(() if args.no_real else (of_real,))):
            for row in subject(base, program, kinds, args.seconds, args.pause):
                rows.append(row)
                report(row)
    keep(args, rows, lambda row: (row["kind"], row["subject"]))


if __name__ == "__main__":
    main()

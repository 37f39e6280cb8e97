"""The Java client of RocketMQ, unchanged, and its synchronous sends: to a broker of this library and to the real one, in turns.

Each release of the client sends to this library and to the real broker of the same release: 1 KiB, with 1, 16 and 64 threads of
one producer (tools/interop/clients/Sending.java). A name server of this library gives all of them their routes. The flush is
asynchronous and a file of the log has 1 GiB on each side. Client and broker share the processors, so the rate is that of both.
`broker_cpu_us` is the processor time of all threads of the broker for one send.

    python -m bench.load.clients --dir DIR --reps 2 --out bench/results/clients.json
"""
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.load import brokers
from bench.load.brokers import INTEROP, NotHere
from bench.load.driver import keep, parser
from bench.load.others import repeated
from bench.load.subjects import OURS, REAL
from rmq_store.bench.runner import scratch, settle

TOPIC, BODY = "T", 1024
THREADS = (1, 16, 64)
FILE = 1 << 30

Row = dict[str, Any]


@contextmanager
def names(base: Path) -> Iterator[str]:
    """A name server of this library, a process of its own: its address."""
    ready = base / "names.json"
    ready.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-m", "rmq_store", "namesrv", "--listen", "127.0.0.1:0", "--ready-file",
                                str(ready)], stdout=subprocess.DEVNULL)
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError(f"the name server ended with {process.returncode}")
            time.sleep(0.01)
        yield json.loads(ready.read_text())["namesrv"]
    finally:
        process.terminate()
        process.wait()


def one(release: str, real: bool, base: Path, seconds: float, warm: float) -> list[Row]:
    """The client of a release against one broker: a row for each number of threads. Raises NotHere."""
    version = REAL[release]
    subject = release if real else OURS
    rows = []
    with names(base) as address:
        made = brokers.real(base / "store", version, address, mappedFileSizeCommitLog=FILE) if real else \
            brokers.ours(base / "store", address)
        with made as broker, subprocess.Popen(
                [str(INTEROP / "clients_with_rocketmq.sh"), "--rocketmq", version, "--sending", address, TOPIC, str(BODY),
                 str(warm), str(seconds), *map(str, THREADS)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None and client.stderr is not None
            before = 0.0
            for line in client.stdout:
                row = json.loads(line) if line.startswith("{") else {}      # a client may print more
                cpu = broker.cpu_s()
                if "threads" in row:
                    row |= {"case": f"{release}_{row['threads']}", "subject": subject,
                            "broker_cpu_us": round((cpu - before) * 1e6 / max(row["sent"], 1), 2)}
                    rows.append(row)
                    print(f"{release:13} {subject:13} {row['threads']:3} threads {row['per_s']:9,.0f}/s  "
                          f"p50 {row['p50_us']:7.0f}  p99 {row['p99_us']:7.0f} µs  bad {row['bad']}", flush=True)
                before = cpu
            said = client.stderr.read().strip().splitlines()
    if len(rows) != len(THREADS):
        raise NotHere(said[-1] if said else f"the client ended with {client.returncode}")
    shutil.rmtree(base / "store")
    return rows


def _repetition(release: str, real: bool, base: Path, args: Any) -> list[Row]:
    with scratch(base) as place:
        return one(release, real, place, args.seconds, args.warm)


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, seconds=2.0, warm=4.0, reps=2, releases=",".join(REAL))
    args = p.parse_args(argv)
    if args.quick:
        args.seconds, args.warm, args.reps = 0.2, 0.2, 1
    rows: list[Row] = []
    missing: dict[tuple[str, bool], str] = {}
    with scratch(args.dir) as base:
        for _ in range(args.reps):
            for turn in [(release, real) for release in args.releases.split(",") for real in (False, True)]:
                if turn in missing:
                    continue
                if not args.quick:
                    settle()
                try:
                    rows += repeated(partial(_repetition, *turn, base, args), again=not args.quick)
                except NotHere as why:
                    missing[turn] = str(why)
    rows += [{"case": f"{release}_{threads}", "subject": release if real else OURS, "missing": why}
             for (release, real), why in missing.items() for threads in THREADS]
    keep(args, rows, lambda r: (r["case"], r["subject"]))


if __name__ == "__main__":
    main()

"""How soon a broker serves: `rmqstore serve` on an empty directory, from the start of the process, and one more in a process.

`serve`: from exec until the ready file is there, by the clock and by the processor time that the process has taken by then; the
resident memory that it has at rest, a second later. On a machine that does other work, too, the least of many is the figure.
`fixture`: what the pytest fixture rocketmq_broker does, in a process that has imported the library: opened, and closed again.

    python -m bench.load.starts --reps 20
"""
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import Broker
from rmq_store.bench.runner import scratch

SERVE = ("-m", "rmq_store", "serve")
SEGMENT = 64 << 20


def _cpu_ms(pid: int) -> float:
    """Of all threads so far."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e6


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def serve(base: Path, rest_s: float) -> dict[str, Any]:
    ready = base / "ready"
    command = [sys.executable, *SERVE, str(base / "store"), "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0",
               "--ready-file", str(ready), "-o", f"segment_size_bytes={SEGMENT}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError(f"rmqstore serve ended with status {process.returncode}")
            time.sleep(0.0005)
        wall, cpu = (time.perf_counter() - begun) * 1e3, _cpu_ms(process.pid)
        time.sleep(rest_s)
        return {"ready_ms": round(wall, 1), "cpu_ms": round(cpu, 1), "rss_mib": round(_rss_mib(process.pid), 1)}
    finally:
        process.terminate()
        process.wait()
        ready.unlink(missing_ok=True)
        shutil.rmtree(base / "store", ignore_errors=True)


def fixture(base: Path) -> dict[str, Any]:
    options: dict[str, Any] = {"profile": "test", "_environment": {}, "waitTimeMillsInSendQueue": 60_000}
    begun, used = time.perf_counter(), time.process_time()
    with Broker.open(base / "broker", **options):
        opened, opened_cpu = time.perf_counter(), time.process_time()
    closed = time.perf_counter()
    shutil.rmtree(base / "broker")
    return {"open_ms": round((opened - begun) * 1e3, 1), "open_cpu_ms": round((opened_cpu - used) * 1e3, 1),
            "close_ms": round((closed - opened) * 1e3, 1)}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, reps=20, rest_s=1.0)
    args = p.parse_args(argv)
    if args.quick:
        args.reps, args.rest_s = 1, 0.0
    rows: list[dict[str, Any]] = []
    with scratch(args.dir) as base:
        for rep in range(args.reps):
            rows += [{"subject": "serve", "rep": rep, **serve(Path(base), args.rest_s)},
                     {"subject": "fixture", "rep": rep, **fixture(Path(base))}]
    for subject in ("serve", "fixture"):
        runs = [row for row in rows if row["subject"] == subject]
        names = [name for name in runs[0] if name not in ("subject", "rep")]
        report({"bench": "starts", "subject": subject, "runs": len(runs)} | {
            name: {"least": min(row[name] for row in runs), "median": sorted(row[name] for row in runs)[len(runs) // 2]}
            for name in names})
    keep(args, rows, lambda r: ("starts", r["subject"]))


if __name__ == "__main__":
    main()

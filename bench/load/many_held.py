"""What held pulls cost a broker while nothing arrives: memory for each, and processor time of the process.

The pulls come from another process, over one connection each, as of ten thousand idle clients, and over a hundred connections.
Memory is anonymous memory of the process with the pulls less that before them (smaps_rollup); sockets are the kernel's, and so
is their memory. `cpu_ms_per_s` is the processor time of all threads over a window in which nothing arrives.

    python -m bench.load.many_held --pulls 10000 --seconds 10
"""
import multiprocessing
import re
import resource
import socket
import threading
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench.runner import scratch
from rmq_store.network._front import Front
from rmq_store.remoting.frame import Frame, encode

TOPIC, GROUP, QUEUES = "T", "G", 16
WAIT_S = 60
_SPAWN = multiprocessing.get_context("spawn")


def _memory() -> int:
    """Bytes."""
    found = re.search(r"^Anonymous:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


def _many_files() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _peers(pipe: Connection, address: tuple[str, int], connections: int, pulls: int) -> None:
    """Asks, and keeps the connections until the pipe says something."""
    _many_files()
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6",
              "commitOffset": "0", "suspendTimeoutMillis": "600000", "subVersion": "0", "subscription": "*"}
    with ExitStack() as stack:
        for i in range(connections):
            peer = stack.enter_context(socket.create_connection(address))
            for n in range(i, pulls, connections):
                peer.sendall(encode(Frame(11, n, fields | {"queueId": str(n % QUEUES)})))
        pipe.send("asked")
        pipe.recv()


def measure(path: Path, connections: int, pulls: int, seconds: float) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        front = Front("127.0.0.1", 0, lambda _connection, frame: frame.answer(), lambda _connection: None,
                      connections_max=connections + 16)
        front.use(store)
        front.publish([(TOPIC, 6, QUEUES, QUEUES)], [(GROUP, "", 0, ())])
        server = threading.Thread(target=front.serve)
        server.start()
        ours, theirs = _SPAWN.Pipe()
        child = _SPAWN.Process(target=_peers, args=(theirs, front.address, connections, pulls))
        try:
            before = _memory()
            child.start()
            ours.recv()
            ended = time.monotonic() + WAIT_S
            while front.held() < pulls and time.monotonic() < ended:
                time.sleep(0.01)
            held, memory = front.held(), _memory() - before
            begun, used = time.monotonic(), time.process_time()
            time.sleep(seconds)
            used, took = time.process_time() - used, time.monotonic() - begun
            return {"connections": connections, "held": held, "bytes_each": round(memory / max(held, 1)),
                    "cpu_ms_per_s": round(used / took * 1e3, 3)}
        finally:
            ours.send("end")
            child.join()
            front.stop()
            server.join()


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, pulls=10_000, seconds=10.0)
    args = p.parse_args(argv)
    if args.quick:
        args.pulls, args.seconds = 200, 0.1
    _many_files()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 256
    rows = []
    for connections in (100, args.pulls):
        with scratch(args.dir) as base:
            row: dict[str, Any] = {"bench": "many_held", "connections": connections}
            if connections > most:
                row["missing"] = f"a process may open {most} files here: raise the limit (ulimit -Hn)"
            else:
                row |= measure(Path(base) / "store", connections, args.pulls, args.seconds)
            rows.append(row)
            report(row)
    keep(args, rows, lambda r: ("many_held", f"{r['connections']}_connections"))


if __name__ == "__main__":
    main()

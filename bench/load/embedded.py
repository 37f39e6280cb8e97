"""Does a broker that serves nobody slow down the puts of the process that embeds it?

Two stores of the same options, one of them served by a broker, are open side by side; rounds of puts go to one and the other in
turns, and each round of the served one is divided by its neighbour's: in processor time of the thread that puts, which others
on the machine disturb less than the clock. `holding`: the same while clients hold pulls on other queues of the served store.
`control`: two stores without a broker, which shows what the measurement itself scatters.

    python -m bench.load.embedded --dir DIR --out bench/results/embedded.json
"""
import socket
import statistics
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import Broker, MessageStore
from rmq_store.bench.runner import scratch
from rmq_store.remoting.frame import Frame, encode

BODY = b"x" * 100
CONNECTIONS, PULLS = 8, 8


def seconds(store: MessageStore, count: int) -> float:
    put = store.put
    begun = time.thread_time()
    for _ in range(count):
        put("T", BODY)
    return time.thread_time() - begun


def hold(broker: Broker) -> list[socket.socket]:
    """Connections, each with a few pulls that stay held: of queues to which nothing comes."""
    host, port = broker.address.rsplit(":", 1)
    broker.store.topic_table.set("Quiet", readQueueNums=PULLS, writeQueueNums=PULLS)
    peers = []
    for _ in range(CONNECTIONS):
        peer = socket.create_connection((host, int(port)))
        for queue_id in range(PULLS):
            peer.sendall(encode(Frame(11, queue_id, {
                "consumerGroup": "G", "topic": "Quiet", "queueId": str(queue_id), "queueOffset": "0", "maxMsgNums": "32",
                "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "600000", "subVersion": "0", "subscription": "*",
                "expressionType": "TAG"})))
        peers.append(peer)
    while broker._core.held_count < CONNECTIONS * PULLS:
        time.sleep(0.01)
    return peers


def compare(alone: MessageStore, served: MessageStore, rounds: int, count: int) -> dict[str, float]:
    ratios, ours = [], []
    for i in range(rounds):
        pair = [alone, served] if i % 2 else [served, alone]
        took = {store: seconds(store, count) for store in pair}
        ratios.append(took[served] / took[alone])
        ours.append(took[served] / count * 1e9)
    return {"ratio": round(statistics.median(ratios), 4), "ratio_low": round(min(ratios), 4),
            "ratio_high": round(max(ratios), 4), "put_ns": round(statistics.median(ours))}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, rounds=40, count=20_000)
    args = p.parse_args(argv)
    if args.quick:
        args.rounds, args.count = 2, 100
    rows: list[dict[str, Any]] = []
    for path in ("mmap", "pool"):
        with scratch(args.dir) as base:
            options: dict[str, Any] = {"write_path": path, "segment_size_bytes": 256 << 20}
            with MessageStore.open(Path(base) / "alone", **options) as alone, \
                    Broker.open(Path(base) / "served", **options) as broker:
                for store in (alone, broker.store):
                    seconds(store, args.count)
                with MessageStore.open(Path(base) / "other", **options) as other:
                    seconds(other, args.count)
                    rows.append({"bench": "embedded", "case": "control", "write_path": path,
                                 **compare(alone, other, args.rounds, args.count)})
                rows.append({"bench": "embedded", "case": "idle", "write_path": path,
                             **compare(alone, broker.store, args.rounds, args.count)})
                peers = hold(broker)
                rows.append({"bench": "embedded", "case": "holding", "write_path": path,
                             **compare(alone, broker.store, args.rounds, args.count)})
                for peer in peers:
                    peer.close()
        for row in rows[-3:]:
            report(row)
    keep(args, rows, lambda r: (f"embedded_{r['case']}", r["write_path"]))


if __name__ == "__main__":
    main()

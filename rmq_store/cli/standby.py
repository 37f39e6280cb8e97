"""`rmqstore follow`: a store that follows a master, as a hot standby. Ends in order on SIGTERM."""
import argparse
import json
import os
import signal
import threading

from rmq_store.cli.common import PATH, open_store, option_arguments
from rmq_store.cli.exits import CORRUPT, FINE
from rmq_store.cli.output import Output

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("master", metavar="HOST:PORT", help="the address on which the master listens for slaves (its "
                        "ha_listen, or haListenPort of a broker)")
    parser.add_argument("store", type=PATH, metavar="DIR", help="directory of the store that follows; it is made if it does "
                        "not exist")
    parser.add_argument("--broker", metavar="HOST:PORT", help="the address of the master's broker, from which to copy topics, "
                        "groups, "
                        "consumer offsets and delay offsets every ha_metadata_interval_ms (default: copy nothing beside the "
                        "log)")
    parser.add_argument("--ready-file", metavar="PATH", help="a file to write when the store follows the master: "
                        "{\"offset\": N}")
    option_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    ended = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    try:
        more = {"ha_master_broker": args.broker} if args.broker else {}
        with open_store(args, create=True, services=True, role="slave", ha_master=args.master, **more) as store:
            said = ""
            while not ended.wait(0.05):
                state = store.replication().state
                if state == said:
                    continue
                said = state
                if state == "follows":
                    _ready(args.ready_file, store.max_log_offset)
                if out.as_json:
                    out.line(json.dumps({"kind": "state", "state": state, "offset": store.max_log_offset}))
                else:
                    out.say(f"{args.store} {_WORDS[state]} {args.master}; its log ends at offset {store.max_log_offset}")
                out.flush()
                if state == "refused":
                    return CORRUPT          # the log of the command says why; nothing heals it but a hand
                if state == "failed":
                    store.flush()           # raises what the store failed with; only an open recovers it
    finally:
        signal.signal(signal.SIGTERM, before)
    return FINE


_WORDS = {"waits": "has no connection to", "compares": "compares its log with", "follows": "follows",
          "refused": "refuses to follow",
          "stalled": "cannot store what it gets, and tries again, from", "failed": "has failed, and follows no more"}


def _ready(path: str | None, offset: int) -> None:
    if path:
        whole = f"{path}.{os.getpid()}"
        with open(whole, "w", encoding="utf-8") as f:
            json.dump({"offset": offset}, f)
        os.replace(whole, path)

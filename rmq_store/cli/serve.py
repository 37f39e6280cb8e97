"""`rmqstore serve`: a RocketMQ broker over a store, with a name server in the same process. Ends in order on SIGTERM."""
import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from rmq_store.base.machine.limits import raise_descriptors
from rmq_store.broker.serving import Broker
from rmq_store.cli.common import PATH, keywords, option_arguments
from rmq_store.cli.ending import Ending, ReadyFile
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output
from rmq_store.config.sources import read_config
from rmq_store.config.values import ip_bytes

__all__ = ["arguments", "run"]

LOOPBACK_V6 = bytes(15) + b"\1"


# What a user may take for an option: it is an argument of the command.
ARGUMENTS = {"listen": "--listen HOST:PORT", "namesrv_listen": "--namesrv-listen HOST:PORT", "namesrv": "--namesrv HOST:PORT",
             "metrics_listen": "--metrics-listen HOST:PORT", "advertise": "--advertise HOST[:PORT]"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=PATH, metavar="STORE", help="directory of the store; it is made if it does not exist")
    parser.add_argument("--listen", metavar="HOST:PORT",
                        help="the address of the broker; port 0 chooses a free port (default: 127.0.0.1, and listenPort of "
                        "the options or 10911)")
    names = parser.add_mutually_exclusive_group()
    names.add_argument("--namesrv-listen", metavar="HOST:PORT",
                       help="the address of the name server in this process (default: 127.0.0.1:9876); namesrvAddr of the "
                       "options then has no effect")
    names.add_argument("--namesrv", metavar="HOST:PORT[;HOST:PORT]",
                       help="name servers to register with (default: namesrvAddr of the options); then this process has no "
                       "name server of its own")
    parser.add_argument("--advertise", metavar="HOST[:PORT]", default="",
                        help="the address that routes give to clients (default: the one on which a client reached this "
                        "process)")
    parser.add_argument("--metrics-listen", metavar="HOST:PORT",
                        help="the address of a status page at /, and of Prometheus metrics at /metrics, which need "
                        "rmq_store[metrics]")
    parser.add_argument("--watch", action="store_true",
                        help="print a line a second: rates, connections, how far groups are behind, and the p99 of flushes")
    parser.add_argument("--ready-file", metavar="PATH", type=PATH,
                        help="a file to write when all listeners accept: {\"listen\": \"HOST:PORT\", \"namesrv\": "
                        "\"HOST:PORT\", \"metrics\": \"HOST:PORT\", \"ha\": \"HOST:PORT\", \"pid\": N}, null for what "
                        "is not there; the end of the process removes it")
    option_arguments(parser, short=True, broker=True)


def _listeners(args: argparse.Namespace, given: Mapping[str, Any]) -> dict[str, str | None]:
    """Where the broker listens, and whose name server it uses, out of the command line, the options and the file."""
    entries = {**(read_config(args.config).entries if args.config else {}), **given}
    listen = None if entries.keys() & {"listenPort", "listen_port"} else "127.0.0.1:10911"
    others = args.namesrv if args.namesrv is not None else entries.get("namesrvAddr") or entries.get("namesrv_addr")
    if args.namesrv_listen is not None:
        others = ""                 # not a server that the file of another broker names
    own = args.namesrv_listen or (None if others else "127.0.0.1:9876")
    return {"listen": args.listen if args.listen is not None else listen, "namesrv_listen": own, "namesrv": others or ""}


def run(args: argparse.Namespace, out: Output) -> int:
    raise_descriptors()
    with Ending() as ended:
        given = keywords(args, ARGUMENTS)
        where = _listeners(args, given)
        with ReadyFile(args.ready_file) as ready_file, \
                Broker.open(args.store, advertise=args.advertise, metrics_listen=args.metrics_listen, **where,
                            **given) as broker:
            _warn(broker)
            ready = {"listen": broker.address, "namesrv": broker.namesrv_address, "metrics": broker.metrics_address,
                     "ha": broker.store.replication().address}
            ready_file.write(ready)
            out.line(json.dumps(ready) if out.as_json else _words(ready, where["namesrv"]))
            out.flush()
            if args.watch:
                _watch(broker, out, ended)
            ended.wait()
    return FINE


def _words(ready: Mapping[str, str | None], others: str | None) -> str:
    """What listens where, in one line."""
    parts = [f"broker listens on {ready['listen']}"]
    if ready["namesrv"]:
        parts.append(f"namesrv listens on {ready['namesrv']}")
    if others:
        parts.append(f"registers with {others}")
    if ready["ha"]:
        parts.append(f"slaves connect to {ready['ha']}")
    if ready["metrics"]:
        parts.append(f"status page at http://{ready['metrics']}/")
    return ", ".join(parts)


def _watch(broker: Broker, out: Output, ended: Ending) -> None:
    """A line a second, until the command ends."""
    from rmq_store.broker.figures import line

    figures = broker.figures()
    while not ended.wait(1):
        moment = figures.look()
        if out.as_json:
            out.record({"kind": "moment", **moment._asdict()})
        else:
            out.line(line(moment))
        out.flush()


def _warn(broker: Broker) -> None:
    may = "may ask, and needs a signature of plain_acl.yml" if broker.acl_enabled else "may read, write and delete messages"
    for address, what in ((broker.address, may), (broker.namesrv_address, "may read and change routes"),
                          (broker.metrics_address, "may read metrics and the status page"),
                          (broker.store.replication().address, "may read all messages")):
        host = ip_bytes(address.rpartition(":")[0].strip("[]")) if address else b"\x7f"
        if host[0] != 127 and host != LOOPBACK_V6:
            print(f"rmqstore serve: {address} is not loopback: everybody who reaches it {what}", file=sys.stderr)

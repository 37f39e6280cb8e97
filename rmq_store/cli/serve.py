"""`rmqstore serve`: a RocketMQ broker over a store, with a name server in the same process. Ends in order on SIGTERM."""
import argparse
import json
import os
import sys

from rmq_store.broker.serving import Broker
from rmq_store.cli.ending import Ending
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output
from rmq_store.config.sources import read_config
from rmq_store.config.values import ip_bytes

__all__ = ["arguments", "run"]

LOOPBACK_V6 = bytes(15) + b"\1"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as in flush_mode=sync")
    return name, value


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", help="directory of the store; it is made if it does not exist")
    parser.add_argument("-c", "--config", metavar="FILE", help="a broker.conf, or a TOML file with options")
    parser.add_argument("-o", "--option", metavar="NAME=VALUE", type=_pair, action="append", default=[],
                        help="an option of the store or of the broker, by its name here or in RocketMQ; may be repeated")
    parser.add_argument("--profile", metavar="NAME", help="a profile of options (see `rmqstore config profiles`)")
    parser.add_argument("--listen", metavar="HOST:PORT",
                        help="the address of the broker; port 0 chooses a free port (default: 127.0.0.1, and listenPort of "
                        "the options or 10911)")
    names = parser.add_mutually_exclusive_group()
    names.add_argument("--namesrv-listen", metavar="HOST:PORT",
                       help="the address of the name server in this process (default: 127.0.0.1:9876)")
    names.add_argument("--namesrv", metavar="HOST:PORT[;HOST:PORT]",
                       help="name servers to register with; then this process has no name server of its own")
    parser.add_argument("--advertise", metavar="HOST[:PORT]", default="",
                        help="the address that routes give to clients (default: the one on which a client reached this "
                        "process)")
    parser.add_argument("--metrics-listen", metavar="HOST:PORT",
                        help="the address of a status page at /, and of Prometheus metrics at /metrics, which need "
                        "rmq_store[metrics]")
    parser.add_argument("--watch", action="store_true",
                        help="print a line a second: rates, connections, how far groups are behind, and the p99 of flushes")
    parser.add_argument("--ready-file", metavar="PATH",
                        help="a file to write when all listeners accept: {\"listen\": \"HOST:PORT\", \"namesrv\": "
                        "\"HOST:PORT\", \"metrics\": \"HOST:PORT\"}")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)


def _listen(args: argparse.Namespace) -> str | None:
    """None: the configuration file, or an option, names listenPort."""
    names = {name for name, _ in args.option} | (read_config(args.config).entries.keys() if args.config else set())
    return args.listen or (None if names & {"listenPort", "listen_port"} else "127.0.0.1:10911")


def run(args: argparse.Namespace, out: Output) -> int:
    with Ending() as ended:
        own = None if args.namesrv else args.namesrv_listen or "127.0.0.1:9876"
        more = {"profile": args.profile} if args.profile else {}
        with Broker.open(args.store, listen=_listen(args), namesrv_listen=own, namesrv=args.namesrv, advertise=args.advertise,
                         metrics_listen=args.metrics_listen, config=args.config, **more, **dict(args.option)) as broker:
            _warn(broker)
            ready = {"listen": broker.address, "namesrv": broker.namesrv_address, "metrics": broker.metrics_address}
            if (ha := broker.store.replication().address) is not None:
                ready["ha"] = ha
            if args.ready_file:
                whole = f"{args.ready_file}.{os.getpid()}"
                with open(whole, "w", encoding="utf-8") as f:
                    json.dump(ready, f)
                os.replace(whole, args.ready_file)
            where = f", namesrv listens on {broker.namesrv_address}" if broker.namesrv_address else ""
            out.say(f"broker listens on {broker.address}{where}")
            if out.as_json:
                out.line(json.dumps(ready))
            out.flush()
            if args.watch:
                _watch(broker, out, ended)
            ended.wait()
    return FINE


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

"""`rmqstore namesrv`: a RocketMQ name server, with which brokers register and where clients ask for routes. Ends on SIGTERM."""
import argparse
import ipaddress
import json
import sys

from rmq_store.base.machine.limits import raise_descriptors
from rmq_store.cli.common import PATH, named
from rmq_store.cli.ending import Ending, ReadyFile
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output
from rmq_store.namesrv.serving import NameServer

ARGUMENTS = {"listen": "--listen HOST:PORT"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:9876",
                        help="the address to listen on; port 0 chooses a free port (default: 127.0.0.1:9876)")
    parser.add_argument("--ready-file", metavar="PATH", type=PATH,
                        help="a file to write when the server accepts: {\"namesrv\": \"HOST:PORT\", \"pid\": N}; the end of "
                        "the process removes it")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE", dest="options",
                        help="an option of TLS, tls.server.mode and others (docs/broker.md); may be repeated")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace, out: Output) -> int:
    raise_descriptors()
    with Ending() as ended, ReadyFile(args.ready_file) as ready, \
            NameServer.open(args.listen, **named(args.options, ARGUMENTS)) as server:
        host = server.address.rpartition(":")[0].strip("[]")
        if not ipaddress.ip_address(host).is_loopback:
            print(f"rmqstore namesrv: {server.address} is not loopback: everybody who reaches it may change routes",
                  file=sys.stderr)
        ready.write({"namesrv": server.address})
        out.say(f"namesrv listens on {server.address}")
        if out.as_json:
            out.line(json.dumps({"namesrv": server.address}))
        out.flush()
        ended.wait()
    return FINE

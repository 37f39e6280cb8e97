"""`rmqstore namesrv`: a RocketMQ name server, with which brokers register and where clients ask for routes. Ends on SIGTERM."""
import argparse
import ipaddress
import json
import signal
import sys
from collections.abc import Callable

from rmq_store.cli.common import PATH
from rmq_store.cli.ending import ReadyFile
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output
from rmq_store.namesrv.routes import Routes
from rmq_store.remoting.client import address_text, listen_address, listening
from rmq_store.remoting.loop import Loop


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:9876",
                        help="the address to listen on; port 0 chooses a free port (default: 127.0.0.1:9876)")
    parser.add_argument("--ready-file", metavar="PATH", type=PATH,
                        help="a file to write when the server accepts: {\"namesrv\": \"HOST:PORT\", \"pid\": N}; the end of "
                        "the process removes it")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace, out: Output) -> int:
    routes = Routes()
    listen = listen_address(args.listen, "--listen", "127.0.0.1:9876")
    with ReadyFile(args.ready_file) as ready:
        with listening("--listen", listen):
            loop = Loop(*listen, routes.answer, routes.gone)
        _serve(loop, ready, out)
    return FINE


def _serve(loop: Loop, ready: ReadyFile, out: Output) -> None:
    before = signal.signal(signal.SIGTERM, _stop(loop))
    try:
        address = address_text(loop.address)
        if not ipaddress.ip_address(loop.address[0]).is_loopback:
            print(f"rmqstore namesrv: {address} is not loopback: everybody who reaches it may change routes", file=sys.stderr)
        ready.write({"namesrv": address})
        out.say(f"namesrv listens on {address}")
        if out.as_json:
            out.line(json.dumps({"namesrv": address}))
        sys.stdout.flush()
        loop.serve()
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(loop: Loop) -> Callable[[int, object], None]:
    return lambda number, frame: loop.stop()

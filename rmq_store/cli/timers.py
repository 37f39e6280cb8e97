"""`rmqstore timers`: which timer messages wait, and taking one back.

Listing reads beside a running writer and writes nothing. --recall opens the store for writing.
"""
import argparse

from rmq_store.cli.common import NAME, open_store, store_arguments
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output
from rmq_store.errors import ConfigError


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("-t", "--topic", type=NAME, help="list only the messages for this topic")
    parser.add_argument("--recall", metavar="HANDLE", action="append", default=[],
                        help="take this message back before it is delivered; HANDLE is what the list shows, or what a RocketMQ "
                        "client got; may be repeated")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.recall:
        return _recall(args, out)
    count = 0
    with open_store(args, readonly=True) as store:
        for timer in store.timers(topic=args.topic):
            count += 1
            if out.as_json:
                out.record({"kind": "timer", **timer._asdict()})
            else:
                out.line(f"{timer.handle or '(no handle)'}  {timer.topic}/{timer.queue_id}, due at {timer.deliver_ms}, "
                         f"{timer.size} bytes, waits at offset {timer.offset}")
    out.say("1 timer message waits" if count == 1 else f"{count} timer messages wait")
    return FINE


def _recall(args: argparse.Namespace, out: Output) -> int:
    if args.topic is not None:
        raise ConfigError("--topic is for the list: name the messages to take back by their handles")
    with open_store(args) as store:
        for handle in args.recall:
            result = store.recall(handle)
            if out.as_json:
                out.record({"kind": "recalled", "handle": handle, "offset": result.offset})
            else:
                out.line(f"{handle}  is taken back")
        store.flush()
    return FINE

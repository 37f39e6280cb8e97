"""`rmqstore follow`: a store that follows a master, as a hot standby. Ends in order on SIGTERM."""
import argparse
import json

from rmq_store.base.machine.limits import raise_descriptors
from rmq_store.cli.common import PATH, open_store, option_arguments
from rmq_store.cli.ending import Ending, ReadyFile
from rmq_store.cli.exits import CORRUPT, FINE
from rmq_store.cli.output import Output
from rmq_store.errors import ConfigError

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
    parser.add_argument("--ready-file", metavar="PATH", type=PATH, help="a file to write when the store follows the "
                        "master: {\"offset\": N, \"pid\": N}; the end of the process removes it")
    option_arguments(parser, short=True)


def run(args: argparse.Namespace, out: Output) -> int:
    raise_descriptors()
    with Ending() as ended:
        more = {"ha_master_broker": args.broker} if args.broker else {}
        _need_slave(args)
        with ReadyFile(args.ready_file) as ready, \
                open_store(args, create=True, services=True, role="slave", ha_master=args.master, **more) as store:
            said = ""
            while not ended.wait(0.05):
                state = store.replication().state
                if state == said:
                    continue
                said = state
                if state == "follows":
                    ready.write({"offset": store.max_log_offset})
                if out.as_json:
                    out.line(json.dumps({"kind": "state", "state": state, "offset": store.max_log_offset}))
                else:
                    out.say(f"{args.store} {_WORDS[state].format(args.master)}; its log ends at offset {store.max_log_offset}")
                out.flush()
                if state == "refused":
                    return CORRUPT          # the log of the command says why; nothing heals it but a hand
                if state == "failed":
                    store.flush()           # raises what the store failed with; only an open recovers it
    return FINE


def _need_slave(args: argparse.Namespace) -> None:
    """The command line says the role and the master already. -o may say the same role; another one is a mistake."""
    for text in list(args.options):
        name, _, value = text.partition("=")
        if name.strip() in ("role", "brokerRole", "broker_role"):
            if value.strip().lower() != "slave":
                raise ConfigError(f"-o {text}: `rmqstore follow` makes a slave, so leave the option out; `rmqstore promote` "
                                  "makes a slave a master")
            args.options.remove(text)
        elif name.strip() in ("ha_master", "haMasterAddress", "ha_master_address"):
            raise ConfigError(f"-o {text}: the command line names the master, {args.master}: leave the option out")


_WORDS = {"waits": "has no connection to {}", "compares": "compares its log with that of {}", "follows": "follows {}",
          "refused": "refuses to follow {}",
          "stalled": "cannot store what it gets from {}, and tries again",
          "failed": "has failed to store what it got from {}, and does not follow any more"}

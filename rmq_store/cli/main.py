"""Entry point of `rmqstore`: takes the arguments apart, runs one command, turns what it raises into an exit code.

The main thread only. Exit codes: exits.py. Ctrl-C ends a command with 130 after its store was closed; a reader that
goes away (`| head`) ends it without a word and with 141, as it ends other programs (128 and the number of SIGPIPE).
"""
import argparse
import contextlib
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from rmq_store.cli.exits import CANNOT_OPEN, CORRUPT, FINDINGS, INTERRUPTED, PIPE_CLOSED, REFUSED, USAGE, epilog
from rmq_store.cli.output import Output, of_standard_output, patient
from rmq_store.errors import (
    ArgumentIllegal,
    BackendUnavailable,
    ConfigError,
    CorruptionError,
    MessageIllegal,
    PropertiesSizeExceeded,
    RmqStoreError,
    StoreLocked,
    StoreRefusesToLoad,
    StoreStateError,
)
from rmq_store.events import printable
from rmq_store.version import VERSION

SERVE = "follow", "namesrv", "serve"        # they end with SIGTERM, and not with their output

COMMANDS = {
    "demo": "write a small store, and show its contents and which messages are durable",
    "put": "store the lines of standard input, or of a file, as messages",
    "get": "show the messages of a topic or of one queue, from an offset on",
    "tail": "show the messages of a topic or of one queue as they arrive",
    "table": "show a topic as a table: the newest message of each key",
    "query": "find messages by key, unique key, message id, log offset or time",
    "stat": "show the contents of a store, and how far it is flushed and dispatched",
    "offsets": "show the offsets of consumer groups, or move the offset of one group",
    "topics": "show, make, change or delete topics as a broker would know them; remove unused queues",
    "groups": "show, make, change or delete consumer groups as a broker would know them",
    "filters": "show, register or delete the SQL92 filters of consumer groups",
    "transactions": "list the transactions that nobody has decided, commit one or roll it back",
    "timers": "list the timer messages that wait, take one back",
    "clean": "delete old commit-log files and the queue and index entries that point into them",
    "dump": "decode the files of a store; this works on damaged stores too",
    "doctor": "check a directory and this process for a store there: facts, consequences, cures",
    "advise": "measure the device of a directory with every back end, propose a profile and give the reasons",
    "config": "show all options, their values and the source of each value; list profiles; convert a broker.conf to TOML",
    "bench": "measure workloads and peers on the disks of the given directories",
    "verify": "compare the log, queues, index and manifests of a store with each other; this works on damaged stores too",
    "scrub": "compare the sealed files of a log with their manifests: paced, resumable, beside a running store",
    "repair": "repair a damaged store, or list the steps; replaced files are kept in .salvage/",
    "copy": "copy messages into another store, as new messages or unchanged; an interrupted copy continues when it is run "
    "again",
    "export": "write messages as JSON lines",
    "import": "put messages from JSON lines into a store",
    "backup": "back up a store, which may be open, into a directory of backups; a later backup copies only new data",
    "restore": "restore a store from a backup; or list the backups, or check one of them",
    "namesrv": "run a RocketMQ name server, with which brokers register and where clients ask for routes",
    "serve": "run a RocketMQ broker over a store, with a name server in the same process",
    "follow": "follow a master by RocketMQ's HA protocol, as a hot standby of its messages",
    "promote": "make the directory of a slave that of a master, once the old master is gone",
    "spark": "query, audit, rebuild, export and copy stores with Apache Spark (pip install 'rmq_store[spark]')",
    "readback": "recover a copy of a store and print all its contents, to compare two stores",
}
MODULES = {"import": "importing", "copy": "copying", "follow": "standby"}       # whose names are taken


class _Help(argparse.HelpFormatter):
    """Keeps the lines of an epilog apart."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # for help alone

        lines = text.splitlines()
        return super()._fill_text(text, width, indent) if len(lines) == 1 else "\n".join(
            textwrap.fill(line, width, initial_indent=indent, subsequent_indent=f"{indent}       ") for line in lines)


def _columns() -> int:
    """How wide a line of help may be; as shutil.get_terminal_size says, which loads what unpacks archives."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class _Parser(argparse.ArgumentParser):
    """Argument errors end with 64; 2 means a store that refuses to load."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        hint = "; `rmqstore --help` lists the commands" if " " not in self.prog else ""
        self.exit(USAGE, f"{self.prog}: {message}{hint}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is not sys.stdout:
            super()._print_message(message, file)
        elif message:               # argparse would pass over what it cannot write, or leave it to the end of Python
            file.write(message)
            file.flush()


def load(name: str) -> Any:
    """The module of a command."""
    return importlib.import_module(f"rmq_store.cli.{MODULES.get(name, name)}")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or of `only` one: a command should not pay for the others. A name that is none: the parser of
    all, without their arguments."""
    parser = _Parser(prog="rmqstore", description="Work with Apache RocketMQ message stores: read, write, check, "
                     "replicate and serve them.",
                     epilog=epilog(), formatter_class=_Help)
    parser.add_argument("--version", action="version", version=f"rmqstore {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser, prog="rmqstore")
    for name, what in COMMANDS.items():
        if only in COMMANDS and name != only:
            continue
        module = load(name) if only in (None, name) else None
        command = commands.add_parser(name, help=what, description=what[:1].upper() + what[1:] + ".", epilog=epilog(name),
                                      formatter_class=_Help)
        if module is not None:
            module.arguments(command)
            command.set_defaults(run=module.run)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of one command. Options may stand before, between and behind what has no name."""
    first = argv[0] if argv and argv[0] in COMMANDS else "none"
    parser = build_parser(first)
    if first == "none":
        return parser.parse_args(argv)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    command: argparse.ArgumentParser = commands.choices[first]
    below = any(isinstance(action, argparse._SubParsersAction) for action in command._actions)
    args = command.parse_args(argv[1:]) if below or "--" in argv else command.parse_intermixed_args(argv[1:])
    args.command = first
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:         # of --help and --version
        _drop_output()
        return PIPE_CLOSED
    except OSError as error:
        _drop_output()
        print(f"rmqstore: {_text(of_standard_output(error))}", file=sys.stderr)
        return CANNOT_OPEN
    with patient() if args.command in SERVE else contextlib.nullcontext():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    out = Output(args.json)
    _log_to_stderr(args.verbose)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "closed .* with dispatch at", RuntimeWarning)     # the log says the same
            code: int = args.run(args, out)
        out.flush()
        return code
    except BrokenPipeError as error:
        _drop_output()
        _tell(args.command, *getattr(error, "__notes__", ()))
        return PIPE_CLOSED
    except KeyboardInterrupt as error:
        _tell(args.command, *getattr(error, "__notes__", ()))
        return INTERRUPTED
    except (RmqStoreError, OSError, MemoryError) as error:
        try:
            out.flush()
        except OSError:
            _drop_output()
        said = _text(error)
        _tell(args.command, said, *(note for note in getattr(error, "__notes__", ()) if note not in said))
        return exit_code(error)


def _drop_output() -> None:
    """Standard output takes nothing any more. Python would complain once more at exit while flushing what is left."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):       # no file of its own
        pass


def _tell(command: str, *lines: str) -> None:
    for line in lines:
        print(f"rmqstore {command}: {line}", file=sys.stderr)


def exit_code(error: BaseException) -> int:
    """Which exit code says what `error` means."""
    from rmq_store.cli.common import NothingFound  # loaded by now, where it is raised

    if isinstance(error, NothingFound):
        return FINDINGS
    if isinstance(error, (ArgumentIllegal, ConfigError, MessageIllegal, PropertiesSizeExceeded)):
        return USAGE
    if isinstance(error, StoreRefusesToLoad):
        return REFUSED
    if isinstance(error, CorruptionError):
        return CORRUPT
    if isinstance(error, (StoreStateError, BackendUnavailable, OSError)):
        return CANNOT_OPEN
    return CANNOT_OPEN if isinstance(error, MemoryError) else FINDINGS


def _text(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return f"not enough memory{f': {error}' if str(error) else ''}: ask for less at a time"
    if isinstance(error, StoreLocked):
        error.cure = "end that process; get, query, tail and stat read beside it"
    if isinstance(error, PermissionError) and error.filename and error.errno == 13 and ":" not in str(error.strerror):
        from rmq_store.log.recovery.places import denied  # as in common.open_store

        error = denied(os.path.abspath(os.fsdecode(error.filename)))
    if isinstance(error, OSError) and not isinstance(error, RmqStoreError) and error.strerror:
        from rmq_store.base.io.wants import limit_named  # as above

        error = limit_named(error)
        return f"{error.strerror}" + (f": {error.filename}" if error.filename is not None else "")
    return str(error)


class _Lines(logging.Formatter):
    """With the name of the event, which programs match. What a record has beyond its first line is indented, so that no text
    of a peer looks like a line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        record.what = f" {record.event}" if hasattr(record, "event") else ""
        return "\n  ".join(map(printable, super().format(record).split("\n")))


def _log_to_stderr(verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(levelname)s %(name)s%(what)s: %(message)s"))
    log = logging.getLogger("rmq_store")
    log.handlers[:] = [h for h in log.handlers if isinstance(h, logging.NullHandler)]   # main() may run more than once
    log.addHandler(handler)
    log.setLevel(logging.INFO if verbose else logging.WARNING)

"""What the commands share: the arguments that name a store, and how a message is shown.

Control plane, the main thread only.
"""
import argparse
import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rmq_store.codec.layout import time_text
from rmq_store.codec.timer import time_ms
from rmq_store.errors import ArgumentIllegal, ConfigError, FilterIllegal
from rmq_store.events import printable

WAIT_MAX_S = 366 * 86_400
TEXT_SHOWN, BYTES_SHOWN = 400, 64       # of a body, on a terminal
NAMES_SHOWN = 8


def store_arguments(parser: argparse.ArgumentParser, optional: bool = False, json: bool = True) -> None:
    """STORE and the ways to say how it is to be opened."""
    parser.add_argument("store", type=PATH, nargs="?" if optional else None, metavar="STORE", help="root directory of the "
                        "store")
    option_arguments(parser, json)


def _path(text: str) -> str:
    """A path on the command line."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: give a path (is a shell variable not set?)")
    return text


def _text(text: str) -> str:
    """A name or a value on the command line that is compared with, or becomes, a part of a message."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{os.fsencode(text)!r} is not UTF-8, but the text of a message must be: give "
                                         "UTF-8") from None
    return text


def _name(text: str) -> str:
    """The name of a topic or a group on the command line."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty: give a name (is a shell variable not set?)")
    return _text(text)


PATH, TEXT, NAME = _path, _text, _name


def option_arguments(parser: argparse.ArgumentParser, json: bool = True, short: bool = False, broker: bool = False) -> None:
    """json: with the --json that all commands have but those whose own says more. short: with -c, which means --count in some
    commands. broker: options of a broker too."""
    pages = "the store or the broker (docs/options.md, docs/broker.md)" if broker else "the store (docs/options.md)"
    parser.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE", dest="options",
                        help=f"an option of {pages}, by its name or RocketMQ's name; may be repeated")
    parser.add_argument("--profile", type=PATH, metavar="NAME", help="a profile, by name (rmqstore config profiles) or by path")
    parser.add_argument(*("-c",) * short, "--config", type=PATH, metavar="FILE",
                        help="a configuration file: TOML, or RocketMQ's broker.conf")
    if json:
        parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help="also log what the store does, to standard error")


def keywords(args: argparse.Namespace, arguments: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The keywords for open out of -o, --profile and --config. arguments: what a user may take for an option, and the argument
    of the command that it is."""
    result = named(args.options, {"path": "the directory", **arguments})
    if getattr(args, "skip_holes", False):
        result["skip_holes"] = True
    for name in ("profile", "config"):
        value = getattr(args, name)
        if value is not None:
            if name in result:
                raise ConfigError(f"{name} is given twice: give it once")
            result[name] = value
    return result


def named(options: Sequence[str], arguments: Mapping[str, str]) -> dict[str, Any]:
    """What -o gives, by name."""
    result: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"-o {text}: expected NAME=VALUE")
        if name in arguments:
            raise ConfigError(f"-o {name}: that is no option, but an argument of the command: give {arguments[name]}")
        if name.startswith("_") or name in ("cls", "must_exist"):
            raise ConfigError(f"option {name} is unknown: `rmqstore config options` and docs/options.md list all options")
        if name in result:
            raise ConfigError(f"-o {name} is given twice: give it once")
        result[name] = value
    return result


def holes_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--skip-holes", action="store_true", help="read a log of which files between others are lost, or have "
                        "another length: pass over the lost messages, and name them on standard error")


def say_lost(rows: Sequence[Any], args: argparse.Namespace, path: str, what: str = "passed over") -> None:
    """rows: of LostRow (log/recovery/holes.py)."""
    if rows:
        from rmq_store.log.recovery.holes import rows_text  # here, so that --help does not wait for it

        print(f"rmqstore {args.command}: {what} {sum(row.end - row.begin for row in rows)} messages that {path} has lost: "
              f"{rows_text(list(rows))}", file=sys.stderr)


@contextlib.contextmanager
def open_store(args: argparse.Namespace, *, create: bool = False, services: bool = False, **more: Any) -> Iterator[Any]:
    """The store that `args` name. Without `create` a path that holds no store is an error, not a new store. Without `services`
    nothing is delivered and nothing is deleted by age while it is open."""
    from rmq_store.store import MessageStore  # here, so that --help does not wait for it

    given = {**keywords(args), **more}
    with MessageStore.open(args.store, must_exist=not create, _services=services, **given) as store:
        yield store


class NothingFound(ConfigError):
    """What was named on the command line is not there: exit code 1, as for every command that finds nothing."""


def queues_of(store: Any, topic: str, queue_id: int | None) -> list[int]:
    """The queues that are meant: the one that was named, else all of the topic."""
    return [queue_id] if queue_id is not None else store.queues(topic)


def say_unknown(store: Any, args: argparse.Namespace) -> None:
    """Where a topic or a queue that was named has never had a message, says so, and what there is, on standard error."""
    from rmq_store.services.consumer.light_offsets import LMQ_PREFIX  # here, so that --help does not wait for it

    known = store.queues(args.topic)
    if not known:
        topics = sorted(store.topics(), key=lambda name: name.startswith(LMQ_PREFIX))      # of which are many
        import difflib  # for a misspelt topic only

        near = difflib.get_close_matches(args.topic, topics, n=NAMES_SHOWN)
        shown = near or topics[:NAMES_SHOWN]
        more = f" and {len(topics) - len(shown)} more" if len(topics) > len(shown) else ""
        there = f"the topics are {printable(', '.join(shown))}{more}" if topics else "the store has no messages"
        if not topics and store.max_log_offset > store.min_log_offset:
            print(f"rmqstore {args.command}: {no_queues(store, args.store)}", file=sys.stderr)
            return
        print(f"rmqstore {args.command}: topic {args.topic!r} of {args.store} never had a message: {there}", file=sys.stderr)
    elif args.queue is not None and args.queue not in known:
        there = ", ".join(map(str, known[:NAMES_SHOWN])) + (", ..." if len(known) > NAMES_SHOWN else "")
        print(f"rmqstore {args.command}: queue {args.queue} of topic {args.topic!r} never had a message: "
              f"the queues of the topic are {there}", file=sys.stderr)


def no_queues(store: Any, path: str) -> str:
    """What to say of a log to which no queue leads."""
    return (f"no queues lead to the log of {path}, which has {store.max_log_offset - store.min_log_offset} bytes: unless its "
            f"topics were deleted, the queues are lost; run `rmqstore verify {path}`, and `rmqstore repair {path}`, which "
            "builds them from the log")


def moment(text: str) -> int:
    """A time on the command line, as milliseconds: a number of them, or ISO like 2024-05-01T12:00:00 (local time)."""
    try:
        given = OFFSET(text)
    except argparse.ArgumentTypeError:
        pass
    else:
        try:
            return time_ms(given, "the time")
        except ArgumentIllegal as error:
            raise argparse.ArgumentTypeError(str(error).replace("an aware datetime", "2024-05-01T12:00:00")) from None
    import datetime  # most commands take no time

    try:
        return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: give ms since 1970, or 2024-05-01T12:00:00") from None


def number(low: int, high: int) -> Callable[[str], int]:
    """A type of arguments: whole numbers from `low` to `high`."""
    def take(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r}: give a whole number from {low} to {high}")
        return value

    return take


def amount(low: float, high: float, unit: str) -> Callable[[str], float]:
    """A type of arguments: numbers from `low` to `high`, fractions too."""
    def take(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r}: give {unit}, {low} to {high}")
        return value

    return take


QUEUE_ID = number(0, (1 << 31) - 1)
OFFSET = number(-(1 << 63), (1 << 63) - 1)
COUNT = number(1, (1 << 31) - 1)


def waiting_time(text: str) -> float:
    """Seconds on the command line, as long as anybody may wait."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= WAIT_MAX_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a waiting time: give seconds, 0 to {WAIT_MAX_S}")
    return seconds


_NAME = re.compile(r"[%|A-Za-z0-9_-]{1,127}").fullmatch


def table_name(what: str, name: str) -> str:
    """A name for a new entry of topics.json or subscriptionGroup.json."""
    if not _NAME(name):
        raise ConfigError(f"{what} {name!r}: give a name of up to 127 characters % | A-Z a-z 0-9 _ -")
    return name


def _sql(text: str) -> Any:
    """A SQL92 filter on the command line."""
    from rmq_store.filter._program import SqlFilter  # here, so that --help does not wait for it

    try:
        return SqlFilter(text)
    except FilterIllegal as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def sql_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sql", type=_sql, metavar="EXPRESSION", help="only messages whose properties fulfil this SQL92 "
                        "expression, for example \"price BETWEEN 3 AND 5\" (docs/filtering.md); not with --tags")


def body_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--body", choices=("auto", "utf8", "hex", "none"), default="auto",
                        help="how bodies are shown; auto: as text where they are UTF-8, else in hex; on a terminal long ones "
                        "are shortened")


def body_line(fields: Mapping[str, str], size: int, form: str) -> str:
    """A body as a line shows it, out of body_fields: whole, unless a person reads it and did not ask for a form."""
    as_text = fields["body_as"] == "utf8"
    shown = printable(fields["body"]) if as_text else f"0x{fields['body']}"
    limit = TEXT_SHOWN if as_text else 2 + 2 * BYTES_SHOWN
    if form != "auto" or len(shown) <= limit or not sys.stdout.isatty():
        return shown
    return f"{shown[:limit]}... ({size:,} bytes; --body {fields['body_as']} shows all)"


def body_fields(body: bytes, form: str) -> dict[str, str]:
    """The body under "body", and how it is written under "body_as"."""
    if form == "none":
        return {}
    if form != "hex":
        try:
            return {"body": body.decode("utf-8", "replace" if form == "utf8" else "strict"), "body_as": "utf8"}
        except UnicodeDecodeError:
            pass
    return {"body": body.hex(), "body_as": "hex"}


def message_fields(message: Any, body: str) -> dict[str, object]:
    """A message for a JSON line, all that the interface tells about it."""
    fields: dict[str, object] = {
        name: getattr(message, name) for name in (
            "topic", "queue_id", "queue_offset", "offset", "size", "msg_id", "tags", "keys", "flag", "sys_flag",
            "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times")}
    fields["properties"] = dict(message.properties)
    fields |= body_fields(bytes(message.body), body)
    return fields


def message_line(message: Any, body: str) -> str:
    """A message for a person, on one line."""
    parts = [f"{printable(message.topic)}/{message.queue_id}[{message.queue_offset}]", f"@{message.offset}",
             f"{message.size} bytes", time_text(message.store_timestamp)]
    if message.tags:
        parts.append(f"tags={printable(message.tags)}")
    if message.keys:
        keys = message.keys
        parts.append(f"keys={printable(keys if isinstance(keys, str) else ' '.join(keys))}")
    shown = body_fields(bytes(message.body), body)
    if shown:
        parts.append(body_line(shown, len(message.body), body))
    return "  ".join(parts)

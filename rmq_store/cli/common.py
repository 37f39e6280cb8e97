"""What the commands share: exit codes, the arguments that name a store, and how a message is shown.

Control plane, the main thread only.
"""
import argparse
import datetime
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rmq_store import MessageStore
from rmq_store.codec.layout import time_text
from rmq_store.errors import ConfigError

WAIT_MAX_S = 366 * 86_400
FINE, FINDINGS, REFUSED, CANNOT_OPEN, CORRUPT, USAGE, INTERRUPTED = 0, 1, 2, 3, 4, 64, 130

EXIT_CODES = ("exit codes: 0 fine, 1 findings (or nothing found), 2 the store refuses to load, 3 cannot open, 4 corrupt, "
              "64 usage, 130 interrupted")


def store_arguments(parser: argparse.ArgumentParser, optional: bool = False, json: bool = True) -> None:
    """STORE and the ways to say how it is to be opened."""
    parser.add_argument("store", nargs="?" if optional else None, metavar="STORE", help="root directory of the store")
    option_arguments(parser, json)


def option_arguments(parser: argparse.ArgumentParser, json: bool = True) -> None:
    """json: with the --json that all commands have but those whose own says more."""
    parser.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE", dest="options",
                        help="an option of the store (docs/options.md), our name or upstream's; may be repeated")
    parser.add_argument("--profile", metavar="NAME", help="a profile by name (rmqstore config profiles), or a path")
    parser.add_argument("--config", metavar="FILE", help="a configuration file: TOML, or upstream's broker.conf")
    if json:
        parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help="also log what the store does, on standard error")


def keywords(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords for open out of -o, --profile and --config."""
    result: dict[str, Any] = {}
    for text in args.options:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"-o {text}: expected NAME=VALUE")
        if name in result:
            raise ConfigError(f"-o {name} is given twice: give it once")
        result[name] = value
    for name in ("profile", "config"):
        value = getattr(args, name)
        if value is not None:
            if name in result:
                raise ConfigError(f"{name} is given twice: give it once")
            result[name] = value
    return result


@contextmanager
def open_store(args: argparse.Namespace, *, create: bool = False, services: bool = False, **more: Any) -> Iterator[Any]:
    """The store that `args` name. Without `create` a path that holds no store is an error, not a new store. Without `services`
    nothing is delivered and nothing is deleted by age while it is open."""
    given = {**keywords(args), **more}
    log = given.get("commitlog_path", given.get("storePathCommitLog")) or os.path.join(args.store, "commitlog")
    if not create and not os.path.isdir(log):
        raise FileNotFoundError(2, "not a message store: it has no commitlog directory", args.store)
    store = MessageStore.open(args.store, _services=services, **given)
    try:
        yield store
    except BaseException:
        # The traceback keeps message views alive: that is no error of its own.
        with suppress(BufferError):
            store.close()
        raise
    store.close()


def moment(text: str) -> int:
    """A time on the command line, as milliseconds: a number of them, or ISO like 2024-05-01T12:00:00 (local time)."""
    try:
        return OFFSET(text)
    except argparse.ArgumentTypeError:
        pass
    try:
        return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: give milliseconds since 1970, or 2024-05-01T12:00:00") from None


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
        raise argparse.ArgumentTypeError(f"{text!r} is no time to wait: give seconds, 0 to {WAIT_MAX_S}")
    return seconds


_NAME = re.compile(r"[%|A-Za-z0-9_-]{1,127}").fullmatch


def table_name(what: str, name: str) -> str:
    """A name for a new entry of topics.json or subscriptionGroup.json."""
    if not _NAME(name):
        raise ConfigError(f"{what} {name!r}: give a name of up to 127 characters % | A-Z a-z 0-9 _ -")
    return name


def body_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--body", choices=("auto", "utf8", "hex", "none"), default="auto",
                        help="how bodies are shown; auto: as text where they are UTF-8, else in hex")


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
    parts = [f"{message.topic}/{message.queue_id}[{message.queue_offset}]", f"@{message.offset}", f"{message.size} bytes",
             time_text(message.store_timestamp)]
    if message.tags:
        parts.append(f"tags={message.tags}")
    if message.keys:
        keys = message.keys
        parts.append(f"keys={keys if isinstance(keys, str) else ' '.join(keys)}")
    shown = body_fields(bytes(message.body), body)
    if shown:
        text = shown["body"]
        parts.append(printable(text) if shown["body_as"] == "utf8" else f"0x{text}")
    return "  ".join(parts)


def printable(text: str) -> str:
    """Text without what would move a terminal's cursor or colour it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

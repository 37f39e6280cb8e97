"""The options of a read: parsed once from Spark's strings (or Python values), checked, and turned into plain data.

Names are compared without regard to case; an unknown one is an error that names the nearest known one. Any thread.
"""
import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from rmq_store.codec.timer import time_ms
from rmq_store.errors import ConfigError, FilterIllegal
from rmq_store.filter._program import SqlFilter
from rmq_store.spark.store_options import recovery_options
from rmq_store.spark.stores import Broker, brokers_of, whole_path
from rmq_store.spark.view_columns import VIEWS

__all__ = ["ReadOptions", "camel", "flat", "known", "parse_size", "whole_paths", "with_paths"]

TOP = (1 << 63) - 1
Offsets = tuple[tuple[str, str | None, int, int], ...]      # topic, broker (None: any), queue id, offset
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(name: str, value: Any) -> int:
    """"128m", "1g", 4096 -> bytes, at least 1."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", str(value).strip().lower())
    if not match or int(match[1]) < 1:
        raise ConfigError(f"option {name} is {value!r}: a size of at least one byte is needed, like 128m")
    return int(match[1]) * _UNITS[match[2]]


def _count(name: str, value: Any) -> int:
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"option {name} is {value!r}: a whole number of at least 1 is needed")
    return int(text)


def _offset(name: str, value: Any) -> int:
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or int(text) > TOP:
        raise ConfigError(f"option {name} is {value!r}: an offset of 0 or more is needed")
    return int(text)


def _flag(name: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name} is {value!r}: it is true or false")
    return text == "true"


def _choice(*allowed: str) -> Callable[[str, Any], str]:
    def parse(name: str, value: Any) -> str:
        text = str(value).strip().lower()
        if text not in allowed:
            raise ConfigError(f"option {name} is {value!r}: it is one of {', '.join(allowed)}")
        return text
    return parse


def _names(name: str, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    found = tuple(dict.fromkeys(p.strip() for p in parts if p.strip()))
    if not found:
        raise ConfigError(f"option {name} is {value!r}: name at least one")
    return found


def _time(name: str, value: Any) -> int:
    if isinstance(value, datetime):
        value = value.isoformat()           # without a zone it is UTC, as in a text, wherever this runs
    text = str(value).strip()
    try:
        number = int(text)
    except ValueError:
        pass
    else:
        return time_ms(number, f"option {name}", ConfigError)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"option {name} is {value!r}: give milliseconds since 1970, or 2026-05-01T12:00:00Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _json(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ConfigError(f"option {name} is not JSON ({error}): {value[:200]!r}") from error


def _offsets(name: str, value: Any) -> str | Offsets:
    """earliest, latest, {"topic": {"broker": {"0": 23, "1": -1}}}, or {"topic": {"0": 23}} for every broker; -2 is earliest, -1
    latest."""
    if isinstance(value, str) and value.strip().lower() in ("earliest", "latest"):
        return value.strip().lower()
    form = f'option {name}: give earliest, latest or {{"topic": {{"broker": {{"0": 23, "1": -1}}}}}}, not {value!r}'
    found: list[tuple[str, str | None, int, int]] = []
    try:
        for topic, where in _json(name, value).items():
            named = all(isinstance(value, dict) for value in where.values())
            for broker, by_queue in where.items() if named else [(None, where)]:
                for queue_id, offset in by_queue.items():
                    if int(queue_id) < 0 or not -2 <= int(offset) <= TOP:
                        raise ConfigError(form)
                    found.append((topic, broker, int(queue_id), int(offset)))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(form) from error
    return tuple(found)


def _assign(name: str, value: Any) -> tuple[tuple[str, str | None, int], ...]:
    """{"topic": {"broker": [0, 1]}}, or {"topic": [0, 1]} for every broker."""
    found: list[tuple[str, str | None, int]] = []
    try:
        for topic, where in _json(name, value).items():
            by_broker = where.items() if isinstance(where, dict) else [(None, where)]
            found += [(topic, broker, int(q)) for broker, ids in by_broker for q in ids]
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f'option {name} is {value!r}: give {{"topic": {{"broker": [0, 1]}}}}') from error
    return tuple(found)


def _pattern(name: str, value: Any) -> str:
    try:
        re.compile(str(value))
    except re.error as error:
        raise ConfigError(f"option {name} is not a regular expression ({error}): {value!r}") from error
    return str(value)


def _tags(name: str, value: Any) -> tuple[str, ...] | None:
    parts = tuple(p.strip() for p in str(value).split("||") if p.strip())
    return None if not parts or parts == ("*",) else parts


def _sql(name: str, value: Any) -> str:
    try:
        return SqlFilter(str(value)).sql
    except FilterIllegal as error:
        raise ConfigError(f"option {name} is not a SQL92 filter: {error}") from None


def _text(name: str, value: Any) -> str:
    return str(value)


def _roots(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        if odd := next((str(path) for path in value if "," in str(path)), None):
            raise ConfigError(f'option {name} has {odd!r}: a list of paths cannot have one with a comma: give a mapping '
                              '{"broker name": directory}')
        return ",".join(map(str, value))
    return json.dumps(dict(value)) if isinstance(value, Mapping) else str(value)


def flat(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Options with those of a store, store={"name": value}, as Spark takes them: "store.name"."""
    for name, value in given.items():
        if name == "store" and isinstance(value, Mapping):
            yield from ((f"store.{of}", each) for of, each in value.items())
        else:
            yield name, value


def whole_paths(path: Any) -> str:
    """Option path as text, with whole paths: Spark plans, reads and writes in processes that run in other directories."""
    if isinstance(path, Mapping):
        return json.dumps({name: whole_path(str(root)) for name, root in path.items()})
    text = _roots("path", path)
    return text if text.lstrip().startswith("{") else ",".join(map(whole_path, text.split(",")))


def with_paths(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Spark's load([a, b]) gives option "paths", a list as JSON."""
    name = next((name for name in given if name.lower() == "paths"), None)
    if name is None:
        return given
    if any(other.lower() == "path" for other in given):
        raise ConfigError("options path and paths are both given: name the stores in one of them")
    return {other: value for other, value in given.items() if other != name} | {"path": _json(name, given[name])}


PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "path": _roots, "brokerName": _text, "commitLogPath": _roots, "view": _choice(*VIEWS), "columns": _names,
    "subscribe": _names,
    "subscribePattern": _pattern, "assign": _assign, "tags": _tags, "sql": _sql,
    "startingOffsets": _offsets, "endingOffsets": _offsets,
    "startingTimestamp": _time, "endingTimestamp": _time, "startingPhysicalOffset": _offset,
    "endingPhysicalOffset": _offset, "splitSize": parse_size, "minPartitions": _count, "batchRows": _count,
    "batchBytes": parse_size, "verify": _choice("none", "header", "crc"), "onCorrupt": _choice("fail", "skip", "emit"),
    "maxRecordSize": parse_size, "maxOffsetsPerTrigger": _count, "maxBytesPerTrigger": parse_size, "failOnDataLoss": _flag,
    "newBrokers": _choice("earliest", "latest", "fail"),
    "includeTransactional": _flag, "io": _choice("auto", "mmap", "pread"), "propertiesFormat": _choice("map", "json", "raw"),
    "decompress": _flag,
}
_BY_LOWER = {name.lower(): name for name in PARSERS}


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def camel(name: str) -> str:
    """starting_offsets -> startingOffsets."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def known(name: str, names: Mapping[str, str]) -> str:
    """The proper spelling of an option. Raises ConfigError with the nearest one. names: lower case -> proper."""
    found = names.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), names, 1)
        hint = f": did you mean {names[near[0]]}?" if near else f": known are {', '.join(sorted(names.values()))}"
        raise ConfigError(f"option {name!r} is unknown{hint}")
    return found


_TOPICS = frozenset({"subscribe", "subscribe_pattern", "assign"})
_PLACES = frozenset({"starting_physical_offset", "ending_physical_offset"})
_CHOOSING = _TOPICS | _PLACES | {"tags", "sql", "starting_offsets", "ending_offsets", "starting_timestamp", "ending_timestamp",
                                 "include_transactional", "decompress"}
_OF_VIEW = {"consumequeue": _TOPICS, "queues": _TOPICS, "compaction": _TOPICS,
            "errors": _PLACES | {"starting_timestamp", "ending_timestamp"}}


@dataclass(frozen=True)
class ReadOptions:
    """What is read, from where, and how. Docs: docs/spark.md."""

    brokers: tuple[Broker, ...]
    view: str = "messages"
    columns: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: tuple[tuple[str, str | None, int], ...] | None = None
    tags: tuple[str, ...] | None = None
    sql: str | None = None
    starting_offsets: str | Offsets | None = None
    ending_offsets: str | Offsets | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    starting_physical_offset: int | None = None
    ending_physical_offset: int | None = None
    split_size: int = 128 << 20
    min_partitions: int | None = None
    batch_rows: int = 4096
    batch_bytes: int = 16 << 20
    verify: str = "none"
    on_corrupt: str = "fail"
    max_record_size: int = 8 << 20
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    new_brokers: str | None = None
    include_transactional: bool = False
    io: str = "auto"
    properties_format: str = "map"
    decompress: bool = False
    store: tuple[tuple[str, str], ...] = ()     # options of a store that say how it recovers

    @classmethod
    def parse(cls, given: Mapping[str, Any], stream: bool = False) -> "ReadOptions":
        """From option names in any case, or Python's snake_case. Raises ConfigError, FileNotFoundError."""
        found: dict[str, Any] = {}
        store = []
        for raw_name, value in flat(with_paths(given)):
            if value is None:
                continue
            if raw_name.lower().startswith("store."):
                store.append((raw_name[6:], str(value)))
                continue
            name = known(camel(raw_name) if "_" in raw_name else raw_name, _BY_LOWER)
            if name in found:
                raise ConfigError(f"option {name} is given twice")
            found[name] = PARSERS[name](name, value)
        brokers = brokers_of(found.pop("path", ""), found.pop("brokerName", None), found.pop("commitLogPath", None))
        options = cls(brokers=brokers, **{snake(name): value for name, value in found.items()},
                      store=recovery_options(store, brokers[0].root))
        options._check(stream)
        return options

    def _check(self, stream: bool) -> None:
        chosen = [n for n in ("subscribe", "subscribe_pattern", "assign") if getattr(self, n) is not None]
        if len(chosen) > 1:
            raise ConfigError(f"options {' and '.join(camel(n) for n in chosen)} exclude each other: give one of them")
        names = {b.name for b in self.brokers}
        for option, rows in (("assign", self.assign), ("startingOffsets", self.starting_offsets),
                             ("endingOffsets", self.ending_offsets)):
            for row in rows if isinstance(rows, tuple) else ():
                if row[1] is not None and row[1] not in names:
                    raise ConfigError(f"option {option} names broker {row[1]!r}: path has {', '.join(sorted(names))}")
        for low, high in (("starting_timestamp", "ending_timestamp"),
                          ("starting_physical_offset", "ending_physical_offset")):
            a, b = getattr(self, low), getattr(self, high)
            if a is not None and b is not None and a > b:
                raise ConfigError(f"option {camel(low)} is {a}, behind {camel(high)}, which is {b}")
        if len(self.brokers) > 1 and (self.starting_physical_offset is not None or self.ending_physical_offset is not None):
            raise ConfigError("options startingPhysicalOffset and endingPhysicalOffset are places in one log: name one store")
        self._check_view()
        if stream:
            self._check_stream()
        elif self.ending_offsets == "earliest":
            raise ConfigError("option endingOffsets is earliest: there is nothing before that: leave it out, or give offsets")
        elif self.starting_offsets == "latest":
            raise ConfigError("option startingOffsets is latest: a batch read ends there: use a stream, or begin earlier")
        elif self.max_offsets_per_trigger is not None or self.max_bytes_per_trigger is not None:
            raise ConfigError("options maxOffsetsPerTrigger and maxBytesPerTrigger are for streams")

    def _check_view(self) -> None:
        """Raises ConfigError for what chooses messages, where a view cannot obey it."""
        for name in () if self.view == "messages" else _CHOOSING - _OF_VIEW.get(self.view, frozenset()):
            value = getattr(self, name)
            if value not in (None, False, "earliest" if name == "starting_offsets" else "latest"):
                raise ConfigError(f"option {camel(name)} has no effect on view {self.view}: leave it out, and filter the "
                                  "DataFrame with where()")

    def _check_stream(self) -> None:
        if self.view != "messages":
            raise ConfigError(f"option view is {self.view!r}: a stream has only messages: read views in a batch")
        for f in fields(self):
            if f.name.startswith("ending_") and getattr(self, f.name) is not None:
                raise ConfigError(f"option {camel(f.name)} is given to a stream, which has no end: use a batch read")
        if isinstance(self.starting_offsets, tuple) and any(row[3] == -1 for row in self.starting_offsets):
            raise ConfigError("option startingOffsets: -1 (latest) for one queue is not possible in a stream: give its offset, "
                              "startingOffsets=latest for all, or startingTimestamp")

    def selectors(self, broker: str) -> list[tuple[bytes | None, int | None, int, int]] | None:
        """The kernel's selectors for one broker: queues with their own offsets first. None: every row."""
        own: dict[tuple[str, int], list[int]] = {}
        for rows, place in ((self.starting_offsets, 0), (self.ending_offsets, 1)):
            for topic, of, queue_id, offset in rows if isinstance(rows, tuple) else ():
                if of is None or of == broker:
                    earliest_latest = {-2: 0, -1: TOP}
                    own.setdefault((topic, queue_id), [0, TOP])[place] = earliest_latest.get(offset, offset)
        chosen: list[tuple[bytes | None, int | None, int, int]] = []
        if self.assign is not None:
            for topic, of, queue_id in self.assign:
                if of is None or of == broker:
                    low, high = own.get((topic, queue_id), (0, TOP))
                    chosen.append((topic.encode(), queue_id, low, high))
            return chosen
        for (topic, queue_id), (low, high) in own.items():
            if self.subscribe is None or topic in self.subscribe:
                chosen.append((topic.encode(), queue_id, low, high))
        if self.subscribe is not None:
            return chosen + [(topic.encode(), None, 0, TOP) for topic in self.subscribe]
        return [*chosen, (None, None, 0, TOP)] if chosen else None

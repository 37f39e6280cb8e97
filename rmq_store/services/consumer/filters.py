"""The SQL92 filters that consumer groups have registered: config/consumerFilter.json (RocketMQ: ConsumerFilterManager,
ConsumerFilterData).

    {"filterDataByTopic":{topic:{"groupFilterData":{group:{…,"bornTime":ms,"deadTime":ms,"expression":"a > 5"},…},
                                 "topic":topic},…}}

Where the store makes bit maps, dispatch evaluates every filter of this table for each message of its topic, and a read with
the same expression passes over messages whose map says no. That holds for messages stored after bornTime, so the file must
never say an earlier time than is true: a filter leaves the file, durably, before dispatch ceases to evaluate it, and bornTime
is taken when dispatch has begun to. Thread-safety: every method, one lock; no put and no read waits for it.
"""
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmq_store.access.reader._checked import whole
from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import Options
from rmq_store.errors import FilterIllegal, StoreClosed, StoreNotWriteable, illegal
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.filter._bitmap import FilterTable, GroupFilter
from rmq_store.filter._program import SqlFilter, filter_of
from rmq_store.filter.bloom import BloomFilter
from rmq_store.services.consumer.config_file import ConfigFile

__all__ = ["ConsumerFilter", "ConsumerFilters", "open_filters"]

NAME = "consumerFilter.json"
SQL92 = "SQL92"
DEAD_BEFORE_LOAD_MS = 30_000
_LATER = (1 << 63) - 1
SetTable = Callable[[FilterTable | None], tuple[int, int]]
Key = tuple[str, str]       # topic, group


class ConsumerFilter(NamedTuple):
    """What one group wants of one topic. sql: the text. born, died: ms since 1970, 0: lives. version: of the subscription, the
    client's number. positions: the group's bits in a bit map of `bits` bits. RocketMQ: ConsumerFilterData."""

    group: str
    topic: str
    sql: str
    born: int
    died: int
    version: int
    bits: int
    positions: tuple[int, ...]

    @property
    def dead(self) -> bool:
        """Whether the group has unregistered, or has not registered since the store was opened."""
        return self.died >= self.born


class _Entry:
    """A filter in the table: RocketMQ's bean, and what dispatch has of it."""

    def __init__(self, bean: dict[str, Any], made: GroupFilter | None) -> None:
        self.bean, self.made = bean, made

    @property
    def dead(self) -> bool:
        return bool(self.bean["deadTime"] >= self.bean["bornTime"])

    def shown(self) -> ConsumerFilter:
        bean = self.bean
        bloom = bean.get("bloomFilterData") or {"bitNum": 0, "bitPos": ()}
        return ConsumerFilter(bean["consumerGroup"], bean["topic"], bean["expression"], bean["bornTime"], bean["deadTime"],
                              bean["clientVersion"], bloom["bitNum"], tuple(bloom["bitPos"]))


class ConsumerFilters:
    """The filters of all groups of one store. makes_bit_maps: whether dispatch evaluates them (enable_calc_filter_bit_map and
    consumequeue_ext_enabled)."""

    def __init__(self, file: ConfigFile, bloom: BloomFilter, set_table: SetTable, *, makes_bit_maps: bool, readonly: bool,
                 clean_span_ms: int) -> None:
        self._file, self._bloom, self._set_table = file, bloom, set_table
        self.makes_bit_maps, self._readonly, self._clean_span_ms = makes_bit_maps, readonly, clean_span_ms
        self._lock = StoreLock(file.path, file.name)
        self._entries: dict[Key, _Entry] = {}
        self._more: dict[str, Any] = {}         # what else the file holds: kept as it is
        self._dirty = self._ended = False
        found = file.load(_take)
        if found is not None:
            self._loaded(*found)

    def _loaded(self, beans: dict[Key, dict[str, Any]], more: dict[str, Any]) -> None:
        self._more = more
        if self.makes_bit_maps and not all(self._is_ours(key, bean.get("bloomFilterData")) for key, bean in beans.items()):
            # Their bits are those of other parameters: as RocketMQ, all begin anew. The file first, as another process that has
            # the old parameters would believe it of what is dispatched here.
            emit(Event.FILTERS_DROPPED, file=self._file.path, count=len(beans), bits=self._bloom.bits,
                 hashes=self._bloom.hashes)
            self._save({})
            return
        now = _now()
        for key, bean in beans.items():
            if not self._readonly and bean["deadTime"] == 0:        # whoever has it will say so
                bean["deadTime"] = max(now - DEAD_BEFORE_LOAD_MS, bean["bornTime"])
                self._dirty = True
            made = None
            if self.makes_bit_maps:
                made = self._made(key, _program(bean["expression"]), bean["bornTime"])
            self._entries[key] = _Entry(bean, made)
        if self.makes_bit_maps and self._entries:
            at, newest = self._set_table(self._table(self._entries))
            if self._file.from_backup:      # it may know filters that others have replaced meanwhile: they begin anew
                for entry in self._entries.values():
                    self._begin(entry, at, newest)

    def _begin(self, entry: _Entry, at: int, newest: int) -> None:
        entry.bean["bornTime"] = newest
        if entry.made is not None:
            entry.made.begin(at, newest)
        self._dirty = True

    def _is_ours(self, key: Key, bloom: Any) -> bool:
        """BloomFilter.isValid, and whether these are the bits of the group."""
        return (isinstance(bloom, dict) and bloom.get("bitNum") == self._bloom.bits
                and bloom.get("bitPos") == self._bloom.group_positions(key[1], key[0]))

    def _made(self, key: Key, program: SqlFilter | None, born: int) -> GroupFilter:
        topic, group = key
        return GroupFilter(group, topic, program, self._bloom.group_positions(group, topic), self._bloom.bits // 8, born)

    def _table(self, entries: Mapping[Key, _Entry]) -> FilterTable:
        return FilterTable([e.made for e in entries.values() if e.made is not None], self._bloom.bits // 8)

    # ---- registering

    def register(self, group: str, topic: str, sql: str | SqlFilter, *, version: int | None = None,
                 expression_type: str | None = SQL92) -> bool:
        """Registers what `group` wants of `topic`. Returns whether the table took it.

        version: number of the subscription, of which the latest holds: at a lower one nothing changes, at the same one a dead
        filter lives again. None: this call is the latest. expression_type: "SQL92"; of "TAG" (or None) there is nothing to
        register: False. The new filter has `born` of now; the same expression again keeps its own. Raises FilterIllegal for an
        expression that cannot be parsed: then the group's earlier filter of the topic is removed. Raises StoreNotWriteable,
        ArgumentIllegal, OSError. Durability: of a new filter with the next write of the control thread, or `flush`; that an
        earlier one is gone, when the call returns. RocketMQ: ConsumerFilterManager.register.
        """
        self._check(group, topic)
        if expression_type in (None, "", "TAG"):
            return False
        if expression_type != SQL92:
            raise illegal("expression_type", expression_type, "give 'SQL92' or 'TAG'")
        if version is not None:
            whole(version, "version", -(1 << 63), _LATER)
        key = (topic, group)
        with self._lock:
            self._refuse_ended()
            old = self._entries.get(key)
            if old is not None and version is not None and version <= old.bean["clientVersion"]:
                lives = version == old.bean["clientVersion"] and old.dead
                return lives and self._revive(old, version)
            if version is None:
                version = _now() if old is None else max(_now(), old.bean["clientVersion"] + 1)
            text = sql.sql if isinstance(sql, SqlFilter) else sql
            if old is not None and old.bean["expression"] == text and self._is_ours(key, old.bean.get("bloomFilterData")):
                return self._revive(old, version)
            try:
                program = filter_of(sql)
            except FilterIllegal:
                self._take_out([key])
                raise
            if program is None:
                raise illegal("sql", sql, "give the text of a SQL92 expression")
            self._take_out([key])
            self._put_in(key, program, version)
            return True

    def register_group(self, group: str, subscriptions: Mapping[str, str | SqlFilter | None], *,
                       version: int | None = None) -> None:
        """Registers all that `group` wants: {topic: sql, or None for a subscription by tags}. Its filters of other topics die.
        Raises as register. RocketMQ: ConsumerFilterManager.register, on a heartbeat."""
        for topic, sql in subscriptions.items():
            self.register(group, topic, sql or "", version=version, expression_type=SQL92 if sql else "TAG")
        self._kill(group, subscriptions)

    def unregister(self, group: str) -> None:
        """The group is not there any more: its filters are dead from now on. Dispatch still evaluates them; they go when
        filter_data_clean_span_ms have passed. RocketMQ: ConsumerFilterManager.unRegister."""
        self._check(group, "topic")
        self._kill(group, ())

    def _kill(self, group: str, kept: Iterable[str]) -> None:
        with self._lock:
            for (topic, name), entry in self._entries.items():
                if name == group and topic not in kept and not entry.dead:
                    entry.bean["deadTime"] = max(_now(), entry.bean["bornTime"])
                    self._dirty = True

    def remove(self, group: str, topic: str | None = None) -> int:
        """Forgets the filters of a group, or the one of a topic. Returns how many. Durable. Raises StoreNotWriteable,
        OSError."""
        self._check(group, "topic" if topic is None else topic)
        with self._lock:
            self._refuse_ended()
            return self._take_out([key for key in self._entries if key[1] == group and topic in (None, key[0])])

    def _check(self, group: str, topic: str) -> None:
        if self._readonly:
            raise StoreNotWriteable(self._file.path)
        for what, name in (("group", group), ("topic", topic)):
            if not isinstance(name, str) or not name:
                raise illegal(what, name, "give a name")

    def _refuse_ended(self) -> None:
        if self._ended:
            raise StoreClosed(self._file.path)

    def _revive(self, entry: _Entry, version: int) -> bool:
        entry.bean |= {"clientVersion": version, "deadTime": 0}
        self._dirty = True
        return True

    def _take_out(self, keys: list[Key]) -> int:
        gone = [key for key in keys if key in self._entries]
        if gone:
            left = {key: entry for key, entry in self._entries.items() if key not in gone}
            self._save(left)
            for key in gone:
                made = self._entries[key].made
                if made is not None:
                    made.end()
            if self.makes_bit_maps:
                self._set_table(self._table(left))
            self._entries = left
        return len(gone)

    def _put_in(self, key: Key, program: SqlFilter, version: int) -> None:
        made = self._made(key, program, _LATER) if self.makes_bit_maps else None
        positions = self._bloom.group_positions(key[1], key[0])
        entry = _Entry({
            "bloomFilterData": {"bitNum": self._bloom.bits, "bitPos": positions}, "bornTime": 0, "clientVersion": version,
            "consumerGroup": key[1], "dead": False, "deadTime": 0, "expression": program.sql, "expressionType": SQL92,
            "topic": key[0]}, made)
        entries = {**self._entries, key: entry}
        at, newest = self._set_table(self._table(entries) if self.makes_bit_maps else None)
        self._begin(entry, at, newest)
        self._entries = entries

    # ---- looking

    def get(self, group: str, topic: str) -> ConsumerFilter | None:
        """The filter of a group over a topic, None where it has none."""
        with self._lock:
            entry = self._entries.get((topic, group))
            return None if entry is None else entry.shown()

    def list(self, group: str | None = None, topic: str | None = None) -> list[ConsumerFilter]:
        """All filters, or those of a group or a topic; by topic and group."""
        with self._lock:
            return [entry.shown() for key, entry in sorted(self._entries.items(), key=lambda item: item[0])
                    if group in (None, key[1]) and topic in (None, key[0])]

    # ---- the file

    def flush(self) -> None:
        """Writes what changed; durable when it returns. What has been dead for filter_data_clean_span_ms is removed. Raises
        OSError, StoreClosed."""
        if self._readonly:
            return
        with self._lock:
            if self._dirty and self._ended:
                raise StoreClosed(self._file.path)
            if self._ended:
                return
            now = _now()
            self._take_out([key for key, entry in self._entries.items()
                            if entry.dead and now - entry.bean["deadTime"] >= self._clean_span_ms])
            if self._dirty:
                self._save(self._entries)

    def end(self, write: bool) -> None:
        """The store closes: the last write, if any."""
        with self._lock:
            try:
                if write and self._dirty and not self._readonly:
                    self._save(self._entries)
            finally:
                self._ended = True

    def _save(self, entries: Mapping[Key, _Entry]) -> None:
        topics: dict[str, dict[str, Any]] = {}
        for (topic, group), entry in sorted(entries.items(), key=lambda item: item[0]):
            bean = entry.bean | {"dead": entry.dead}
            topics.setdefault(topic, {"groupFilterData": {}, "topic": topic})["groupFilterData"][group] = dict(
                sorted(bean.items()))
        self._file.save(dict(sorted((self._more | {"filterDataByTopic": topics}).items())))
        self._dirty = False


def open_filters(files: ControlFiles, root: str, options: Options, set_table: SetTable | None = None) -> ConsumerFilters:
    """The table of the store in `root`. set_table: hands a table to dispatch, and says from where on it holds and the newest
    store time there is; None: for reading alone. Raises ConfigFileCorrupted."""
    readonly = options.readonly or set_table is None
    return ConsumerFilters(
        ConfigFile(files, root, NAME), BloomFilter(options.bloom_filter_error_pct, options.bloom_filter_groups),
        set_table or (lambda table: (0, 0)), readonly=readonly, clean_span_ms=options.filter_data_clean_span_ms,
        makes_bit_maps=bool(not readonly and options.enable_calc_filter_bit_map and options.consumequeue_ext_enabled))


def _program(sql: str) -> SqlFilter | None:
    try:
        return SqlFilter(sql)
    except FilterIllegal:
        return None


def _take(content: Any) -> tuple[dict[Key, dict[str, Any]], dict[str, Any]]:
    beans = {}
    for topic, of_topic in content.get("filterDataByTopic", {}).items():
        for group, bean in of_topic.get("groupFilterData", {}).items():
            if not isinstance(bean, dict):
                raise ValueError(f"the filter of {group} over {topic} is {bean!r}, not an entry")
            bean = {"clientVersion": 0, "deadTime": 0, "expressionType": SQL92, **bean, "consumerGroup": group, "topic": topic}
            for name in ("bornTime", "clientVersion", "deadTime"):
                if isinstance(bean[name], bool) or not isinstance(bean[name], int) or not -_LATER <= bean[name] <= _LATER:
                    raise ValueError(f"{name} of {group} over {topic} is {bean[name]!r}, not a number")
            if not isinstance(bean["expression"], str):
                raise ValueError(f"the expression of {group} over {topic} is {bean['expression']!r}, not text")
            bloom = bean.get("bloomFilterData")
            if bloom is not None:
                bean["bloomFilterData"] = bloom | {"bitNum": int(bloom["bitNum"]), "bitPos": tuple(map(int, bloom["bitPos"]))}
            beans[topic, group] = bean
    return beans, {name: value for name, value in content.items() if name != "filterDataByTopic"}


def _now() -> int:
    return int(time.time() * 1000)

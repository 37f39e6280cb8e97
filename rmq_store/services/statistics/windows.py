"""Sums, rates and averages of the last minute, hour and day (RocketMQ: StatsItemSet, StatsItem).

Every ten seconds the control thread reads counters that the store keeps anyway, and keeps seven readings for the minute; every
ten minutes it keeps one for the hour, and every hour one for the day. An answer is the difference of the last and the first
reading kept, so it is as old as the last reading, as in RocketMQ. Nothing is added to a put or a get. Any thread.
"""
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypedDict

from rmq_store.base.io._lock import StoreLock
from rmq_store.errors import illegal
from rmq_store.fields import NamedTuple
from rmq_store.services.cleaning.removing import is_system_topic
from rmq_store.services.consumer.counts import GroupCounts
from rmq_store.services.statistics import _counts

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["NAMES", "SAMPLE_MS", "StatsItem", "StatsWindow", "Windows", "human_bytes"]

SAMPLE_MS = 10_000
CHUNK = 1024            # queues that are read in one hold of the GIL
NAMES = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_GET_FROM_DISK_NUMS",
         "GROUP_GET_FROM_DISK_SIZE", "SNDBCK_PUT_NUMS", "BROKER_PUT_NUMS", "BROKER_GET_NUMS",
         "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC")
_OF_STORE = "BROKER_PUT_NUMS", "BROKER_GET_NUMS", "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"


class StatsWindow(TypedDict):
    """Of one window. RocketMQ: BrokerStatsItem."""

    sum: int        # messages, or bytes of records
    tps: float      # sum, for each second between the readings
    avgpt: float    # sum, for each message that was put or each get that found messages; 0.0 where RocketMQ does not count them


class StatsItem(TypedDict):
    """What RocketMQ's request 315 (VIEW_BROKER_STATS_DATA) answers. RocketMQ: BrokerStatsData."""

    statsMinute: StatsWindow
    statsHour: StatsWindow
    statsDay: StatsWindow


class _Counter(NamedTuple):
    name: str
    key: str
    times: int      # how often something was added
    value: int      # the sum of what was added


class _Window:
    """The readings of all items for one window. One that is new counts from the reading before its first on."""

    def __init__(self, begun: float, period_s: int, readings: int) -> None:
        self._period_s, self._readings = period_s, readings
        self._at: deque[float] = deque([begun], maxlen=readings)
        self._due = begun + period_s
        self._rows: dict[tuple[str, str], array[int]] = {}     # times and value of the last readings, the newest last

    def due(self, at: float) -> bool:
        return at >= self._due

    def take(self, at: float, counters: Iterable[_Counter]) -> None:
        self._due += max(int((at - self._due) // self._period_s) + 1, 1) * self._period_s
        self._at.append(at)
        for name, key, times, value in counters:
            row = self._rows.get((name, key))
            if row is None or value < row[-1]:      # the counter began anew
                row = self._rows[name, key] = array("q", (0, 0))
            row.extend((times, value))
            del row[:-2 * self._readings]

    def of(self, name: str, key: str) -> StatsWindow:
        row = self._rows.get((name, key))
        if row is None:
            return {"sum": 0, "tps": 0.0, "avgpt": 0.0}
        change, times = row[-1] - row[1], row[-2] - row[0]
        seconds = self._at[-1] - self._at[-(len(row) // 2)]
        return {"sum": change, "tps": change / seconds if seconds > 0 else 0.0, "avgpt": change / times if times > 0 else 0.0}

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(sorted(self._rows))


class Windows:
    """Of one open store. `cluster`: the key of the items of the whole store, where RocketMQ has the name of the cluster."""

    def __init__(self, path: str, cluster: str, at: float | None = None) -> None:
        self._lock = StoreLock(path, "statistics")
        self._cluster = cluster
        begun = time.monotonic() if at is None else at
        self._windows = {"statsMinute": _Window(begun, 10, 7), "statsHour": _Window(begun, 600, 7),
                         "statsDay": _Window(begun, 3600, 25)}
        self._day = _today()
        self._mornings = ((0, 0), (0, 0))       # puts and gets at the last midnight, and at the one before
        self._totals = (0, 0)

    def take(self, store: "StoreWait", counts: Iterable[GroupCounts], at: float | None = None, day: str | None = None) -> None:
        """Reads the counters, and keeps them in the windows that are due. One thread. Tests give `at`, seconds of a monotonic
        clock, and `day`, the local date."""
        found = list(self._read(store, counts))
        now, today = time.monotonic() if at is None else at, _today() if day is None else day
        totals = {c.name: c.value for c in found if c.name in _OF_STORE}
        puts, gets = (totals.get(name, 0) for name in ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "BROKER_GET_NUMS"))
        with self._lock:
            if today != self._day:      # RocketMQ records at midnight; here the first reading behind it
                self._day, self._mornings = today, (self._totals, self._mornings[0])
            self._totals = puts, gets
            for window in self._windows.values():
                if window.due(now):
                    window.take(now, found)

    def item(self, name: str, key: str) -> StatsItem | None:
        """None: nothing was counted under that name and key up to the last reading. Raises ArgumentIllegal."""
        if name not in NAMES:
            raise illegal("name", name, f"give one of {', '.join(NAMES)}")
        with self._lock:
            return self._item(name, key) if (name, key) in self._windows["statsMinute"] else None

    def items(self) -> dict[str, dict[str, StatsItem]]:
        """All of them: {name: {key: item}}."""
        found: dict[str, dict[str, StatsItem]] = {name: {} for name in NAMES}
        with self._lock:
            for name, key in self._windows["statsMinute"]:
                found[name][key] = self._item(name, key)
        return found

    def _item(self, name: str, key: str) -> StatsItem:
        minute, hour, day = (window.of(name, key) for window in self._windows.values())
        return {"statsMinute": minute, "statsHour": hour, "statsDay": day}

    def totals(self) -> dict[str, str]:
        """RocketMQ's msgPutTotalTodayNow and its like. RocketMQ: BrokerStats."""
        with self._lock:
            now, (today, yesterday) = self._totals, self._mornings
        return {f"msg{kind}Total{when}": str(of[i]) for i, kind in enumerate(("Put", "Get"))
                for when, of in (("YesterdayMorning", yesterday), ("TodayMorning", today), ("TodayNow", now))}

    def _read(self, store: "StoreWait", counts: Iterable[GroupCounts]) -> Iterator[_Counter]:
        ours = 0
        for topic, (messages, size) in _by_topic(store).items():
            yield _Counter("TOPIC_PUT_NUMS", topic, messages, messages)
            yield _Counter("TOPIC_PUT_SIZE", topic, messages, size)
            ours += 0 if is_system_topic(topic) else messages
        for c in counts:
            yield from _of_group(c)
        puts, gets = store._stats()["puts"], store._get_stats()["got_messages"]
        for name, value in zip(_OF_STORE, (puts, gets, ours), strict=True):
            if value > 0:
                yield _Counter(name, self._cluster, 0, value)       # RocketMQ adds to the value alone: its avgpt is 0.0


def _of_group(c: GroupCounts) -> Iterator[_Counter]:
    key, queues = f"{c.topic}@{c.group}", [queue for _, queue in c.queues()]
    for name, times, value in (("GROUP_GET_NUMS", c.gets, sum(q.messages for q in queues)),
                               ("GROUP_GET_SIZE", c.gets, sum(q.bytes for q in queues)),
                               ("GROUP_GET_FROM_DISK_NUMS", c.gets, c.disk_messages),
                               ("GROUP_GET_FROM_DISK_SIZE", c.gets, c.disk_bytes),
                               ("SNDBCK_PUT_NUMS", c.sent_back, c.sent_back)):
        if value > 0:
            yield _Counter(name, key, times, value)


def _by_topic(store: "StoreWait") -> dict[str, tuple[int, int]]:
    """Messages and bytes by topic; a message that light queues have too counts for the topic it was put to. The GIL is given
    away between pieces, as there may be a hundred thousand queues."""
    found: dict[str, tuple[int, int]] = {}
    begin = 0
    while begin >= 0:
        rows, begin = _counts.some_counts(store, begin, CHUNK)
        for topic, _, messages, size in rows:
            before = found.get(topic, (0, 0))
            found[topic] = before[0] + messages, before[1] + size
        time.sleep(0)
    return found


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def human_bytes(count: int) -> str:
    """As RocketMQ's runtime info prints a size: 1536 is "1.5 KiB". RocketMQ: MixAll.humanReadableByteCount."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 6)
    return f"{count / (1 << 10 * power):.1f} {'KMGTPE'[power - 1]}iB"

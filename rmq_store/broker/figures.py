"""What a broker does, from one look to the next: for `rmqstore serve --watch` and for the status page.

Nothing here is on a request's way: it reads counters, positions and histograms that the store and the network thread keep.
"""
import time
from collections import deque
from typing import Any

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.broker.core import Core
from rmq_store.events import printable
from rmq_store.fields import NamedTuple
from rmq_store.services.consumer.progress import Lag
from rmq_store.store import MessageStore

__all__ = ["Figures", "Moment", "count_text", "line", "replication_text", "size_text", "time_text"]

KEPT = 120              # moments
LAG_SHARE = 20          # the lag of all groups is counted anew after this many times the time that counting took
SHOWN_GROUPS = 3        # of a line


class Moment(NamedTuple):
    """Rates since the moment before it, a second's worth each, and what is so now. Durations in ns."""

    at: float                       # time.monotonic
    seconds: float                  # since the moment before
    puts: float
    put_bytes: float
    got: float
    got_bytes: float
    requests: float
    connections: int
    held: int                       # pulls
    flushes: int
    flush_p99: int                  # of these flushes
    behind: dict[str, int]          # group -> messages that it has not consumed
    replication: str = ""           # in words; "" where the store takes part in none


class Figures:
    """One thread looks; any thread reads `moments`. The first look counts from the making of this object."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.moments: deque[Moment] = deque(maxlen=KEPT)
        self._lags: list[Lag] = []
        self._lag_due = 0.0
        self._at = time.monotonic()
        self._counts, self._flush = self._read()

    def _read(self) -> tuple[dict[str, int], Histogram]:
        store = self._core.store
        stats: Any = store.stats()
        counts = {name: stats[name] for name in ("puts", "put_bytes", "got_messages", "got_bytes")}
        counts["requests"] = sum(self._core.processors.counts().values())
        return counts, store.histograms()["flush"]

    def look(self) -> Moment:
        """The next moment. Raises StoreStateError when the store is closed."""
        now = time.monotonic()
        counts, flush = self._read()
        seconds = max(now - self._at, 1e-6)
        rates = {name: (count - self._counts[name]) / seconds for name, count in counts.items()}
        flushes = flush.since(self._flush)
        behind: dict[str, int] = {}
        for row in self.lags():
            behind[row.group] = behind.get(row.group, 0) + row.behind
        moment = Moment(now, seconds, rates["puts"], rates["put_bytes"], rates["got_messages"], rates["got_bytes"],
                        rates["requests"], self._core.front.counts().get("connections", 0), self._core.held_count,
                        flushes.count, flushes.quantile(.99), behind, replication_text(self._core.store))
        self._at, self._counts, self._flush = now, counts, flush
        self.moments.append(moment)
        return moment

    def lags(self) -> list[Lag]:
        """How far every group is behind. With very many groups it is some seconds old, so that counting takes little time."""
        begun = time.monotonic()
        if begun >= self._lag_due:
            self._lags = self._core.store.lag()
            ended = time.monotonic()
            self._lag_due = ended + min(LAG_SHARE * (ended - begun), 60) if ended - begun > 0.01 else 0
        return self._lags


def line(moment: Moment) -> str:
    """A moment for people, on one line."""
    most = sorted(((count, group) for group, count in moment.behind.items() if count), reverse=True)
    groups = ", ".join(f"{printable(group)} {count:,}" for count, group in most[:SHOWN_GROUPS])
    more = f", {len(most) - SHOWN_GROUPS} more" if len(most) > SHOWN_GROUPS else ""
    behind = sum(moment.behind.values())
    return (f"in {count_text(moment.puts)}/s {size_text(moment.put_bytes)}/s  out {count_text(moment.got)}/s "
            f"{size_text(moment.got_bytes)}/s  connections {moment.connections}  held {moment.held}  behind {behind:,}"
            + (f" ({groups}{more})" if groups else "")
            + (f"  flush p99 {time_text(moment.flush_p99)}" if moment.flushes else "  no flush")
            + (f"  {moment.replication}" if moment.replication else ""))


def replication_text(store: MessageStore) -> str:
    """The part of a store in replication, for a line: str."""
    state = store.replication()
    if state.role == "slave":
        known = state.master_offset if state.state != "waits" else None     # else it is what a master said that is gone
        lag = "" if known is None else f", {size_text(max(known - store.max_log_offset, 0))} behind"
        return f"slave {state.state}{lag}"
    replicas = store.replicas()
    if state.address is None:
        return ""
    worst = max((replica.lag_bytes for replica in replicas), default=0)
    return f"replicas {len(replicas)}" + (f", {size_text(worst)} behind" if replicas else "")


def count_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def size_text(value: float) -> str:
    """1536.0 -> 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def time_text(ns: float) -> str:
    """1234567 -> 1.23 ms."""
    for below, unit in ((1e3, "ns"), (1e6, "µs"), (1e9, "ms")):
        if ns < below:
            return f"{ns / (below / 1e3):.3g} {unit}"
    return f"{ns / 1e9:.3g} s"

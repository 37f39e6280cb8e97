"""`spark.readStream.format("rocketmq_store")`: micro-batches by log position, {"broker name": log offset}. Under the name "",
which no broker has, stands of which logs the positions are (offsets.py).

One reader lives beside the driver for as long as a query runs, others are unpickled in the tasks: what a task needs is in its
partition. Positions of brokers that are away are carried on as they are. A broker that the positions do not know is first put
down with the place it begins at, without rows, so that a batch that is run again has the same ones. Nothing hangs on commit()
or stop(): Spark calls the former late and not for the last batch, the latter hardly ever.
"""
import logging
from collections.abc import Iterator
from typing import Any

import pyspark.sql.datasource as api
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from rmq_store.errors import ConfigError
from rmq_store.spark.arrow import read_pieces
from rmq_store.spark.asked import warn_of_unknown_topics
from rmq_store.spark.offsets import Offsets, identities, marked, places, refuse_wider
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions, begin_of_new
from rmq_store.spark.reader import StorePartition
from rmq_store.spark.splits import pack, pieces_of, with_end

__all__ = ["StoreStreamReader"]

log = logging.getLogger("rmq_store.spark")


class StoreStreamReader(api.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one or many logs as they grow."""

    def __init__(self, options: ReadOptions, columns: dict[str, str]) -> None:
        self.options = options
        self.columns = columns
        self._target: dict[str, int] | None = None
        self._logs: list[LogPositions] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_logs": None}

    @property
    def logs(self) -> list[LogPositions]:
        if self._logs is None:
            brokers = sorted(self.options.brokers)
            self._logs = [LogPositions(broker, self.options) for broker in brokers]
        return self._logs

    def initialOffset(self) -> Offsets:
        return marked(self._initial(), {}, self.logs, self.options)

    def _initial(self) -> dict[str, int]:
        options = self.options
        warn_of_unknown_topics(options)
        if options.starting_timestamp is not None:
            return {p.broker.name: p.of_time(options.starting_timestamp) for p in self.logs}
        if options.starting_physical_offset is not None:
            return {p.broker.name: p.of_place(options.starting_physical_offset) for p in self.logs}
        if options.starting_offsets in (None, "latest"):
            return {p.broker.name: p.end() for p in self.logs}
        return {p.broker.name: p.first() for p in self.logs}

    def latestOffset(self, start: Offsets, limit: Any) -> Offsets:
        ends = self._target or self._ends()
        for p in self.logs:
            p.check_whole()
        refuse_wider(start, self.options)
        at, logs = places(start), identities(start)
        found = {**at, **begin_of_new(self.logs, at)}
        known = [p for p in self.logs if p.broker.name in at]
        begins = {p.broker.name: p.check(at[p.broker.name], ends[p.broker.name], known=logs.get(p.broker.name)) for p in known}
        rows, size = self._limits(limit)
        backlog = {name: max(0, ends[name] - begin) for name, begin in begins.items()}
        total = sum(backlog.values())
        for p in known:
            name = p.broker.name
            if backlog[name] == 0:
                found[name] = begins[name]
                continue
            share = backlog[name] / total
            found[name] = p.ahead(begins[name], ends[name], None if rows is None else max(1, round(rows * share)),
                                  None if size is None else max(1, round(size * share)))
        end = marked(found, start, self.logs, self.options)
        return start if end == start else end

    def _ends(self) -> dict[str, int]:
        return {p.broker.name: p.end() for p in self.logs}

    def _limits(self, limit: Any) -> tuple[int | None, int | None]:
        options = self.options
        if isinstance(limit, ReadAllAvailable):
            if options.max_offsets_per_trigger is None and options.max_bytes_per_trigger is None:
                return None, None
            if self._target is None:        # asked for everything at once
                return None, None
        return options.max_offsets_per_trigger, options.max_bytes_per_trigger

    def getDefaultReadLimit(self) -> Any:
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, int]:
        return self._ends()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def partitions(self, start: Offsets, end: Offsets) -> list[api.InputPartition]:
        refuse_wider(end, self.options)
        logs, begins, ends = {p.broker.name: p for p in self.logs}, places(start), places(end)
        for name, to in ends.items():
            if name not in logs and begins.get(name) != to:
                raise ConfigError(f"broker {name} is not in option path, which has {', '.join(logs)}, but the next batch "
                                  f"reads its log from {begins.get(name)} to {to}: restore the broker, under this name")
        pieces = []
        for p in self.logs:
            name = p.broker.name
            if name not in ends:            # it came after the batch was planned
                continue
            first, to, known = p.first(), ends[name], identities(end).get(name)
            begin = begins.get(name, first if self.options.new_brokers in (None, "earliest") else to)
            if begin < to:
                p.check(to, p.end(), known=known)
                begin = p.check(begin, to, known=identities(start).get(name))
            found = pieces_of(p.broker, p.files(), begin, to, self.options.split_size, aligned=True)
            pieces += with_end(found, None if known is None or known["last"] is None else tuple(known["last"]))
        log.info("stream: %s to %s, %d pieces", start, end, len(pieces))
        return [StorePartition(part) for part in pack(pieces, self.options.split_size) or [()]]

    def read(self, partition: api.InputPartition) -> Iterator[Any]:
        part = partition.part if isinstance(partition, StorePartition) else ()
        return read_pieces(part, self.options, self.columns)

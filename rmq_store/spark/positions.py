"""Places in logs that streams and exports go by: where a log ends, where a time or a place begins, how far a limit leads, and
where brokers begin that nobody has read yet. Without pyspark.

A position is a log offset at which a record begins, or will begin. Files are only read.
"""
import logging
from collections.abc import Iterator, Mapping, Sequence

from rmq_store.access.bulk._columns import Region, Split
from rmq_store.codec.bad import Bad
from rmq_store.errors import ConfigError, CorruptionError
from rmq_store.spark.identity import Identity, identity_of, refuse_another
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.recovered import CrashedLog
from rmq_store.spark.stores import Broker, LogFile, log_files, whole_before

__all__ = ["LogPositions", "begin_of_new", "snapshot_ends"]

log = logging.getLogger("rmq_store.spark")

# What lies at the end of a log, whatever comes behind it: nothing yet, or a record that is not whole.
_UNWRITTEN = (Bad.ZEROS.text, Bad.BODY_CRC.text, Bad.RECORD_CRC.text)


class LogPositions:
    """The log of one store, looked at again each time. One thread."""

    def __init__(self, broker: Broker, options: ReadOptions) -> None:
        self.broker = broker
        self.options = options
        self._crashed = CrashedLog(broker, options)
        self._known = -1                        # a position that was good when the end was last looked for
        self._stopped: tuple[str, Region] | None = None     # why the end was there, where good records lie behind it
        self._told: tuple[str, Region] | None = None        # what of that was logged

    def files(self) -> list[LogFile]:
        return log_files(self.broker, holes=self.options.on_corrupt != "fail")

    def first(self) -> int:
        """The first position; 0 where there is no file yet."""
        files = self.files()
        return files[0].start if files else 0

    def end(self, over: bool = False, left: bool = False) -> int:
        """Behind the newest whole record, where the store's next writer continues. The walk begins where the last one ended, so
        an idle look costs one record's head.

        Good records behind a place that was not written do not count: a power cut left them behind, or recovery did, and a
        writer will write over them. With onCorrupt=fail neither do those behind any other damage, which check_whole tells.
        over: they do count, as they do in a batch read, which tells of the damage between.

        Of a store that was not closed and that nobody has open: where recovery will end the log. left: also what that will cut.
        """
        files = self.files()
        self._stopped = None
        if not files:
            return 0
        if not left and (recovered := self._crashed.end(files)) is not None:
            return recovered
        newest = next(f for f in files if f.newest)
        begin = self._known if newest.start <= self._known <= newest.end and not over else newest.start
        if newest.first_time() is None:
            return newest.start
        with self._split(newest, begin) as split:
            end = None
            while end is None and not split.done:
                split.skip()
                end = next((self._stop(newest, region) for region in split.take_bad()
                            if not over and (region.kind in _UNWRITTEN or self.options.on_corrupt == "fail")), None)
            end = min(split.position, newest.end) if end is None else end
        if not over:
            self._known = end
        return end

    def _stop(self, file: LogFile, region: Region) -> int:
        self._stopped = file.path, region
        if self._told != self._stopped:
            self._told = self._stopped
            log.warning("%s: the log ends at %d (%s), but whole records follow at %d: a crash or damage left them there",
                        file.path, region.begin, region.kind, region.end)
        return region.begin

    def check_whole(self) -> None:
        """Raises CorruptionError where the end that end() found is damage with good records behind it."""
        if self._stopped is not None and self._stopped[1].kind not in _UNWRITTEN:
            path, region = self._stopped
            error = CorruptionError(path, region.begin, "a whole record", f"{region.kind}, good records follow at {region.end}")
            error.cure = "look at it with `rmqstore dump`, mend it with `rmqstore repair`, or read with onCorrupt=skip or emit"
            raise error

    def of_time(self, milliseconds: int) -> int:
        """Of the first record whose storeTimestamp is not before; the end where there is none."""
        files = self.files()
        begin = 0
        for i, file in enumerate(files):
            first = file.first_time()
            if first is not None and first < milliseconds:
                begin = i
        return self.not_before(milliseconds, files[begin].start, self.end()) if files else 0

    def not_before(self, milliseconds: int, begin: int, end: int) -> int:
        """Of the first record from position `begin` on whose storeTimestamp is not before; `end` where there is none."""
        for file in self.files():
            if file.end <= begin or file.start >= end:
                continue
            with self._split(file, max(begin, file.start), min(end, file.end)) as split:
                split.choose(time_low=milliseconds)
                while not split.done:
                    found = split.batch(["physicalOffset"], max_rows=1)
                    split.take_bad()
                    if found is not None and found[0]:
                        return int.from_bytes(found[1]["physicalOffset"], "little")
        return end

    def of_place(self, offset: int) -> int:
        """Of the first record that begins at log offset `offset` or behind it, as a batch read takes it; the offset itself
        before the log's begin and behind its end."""
        end = self.end()
        for file in self.files():
            if not file.start <= offset < min(file.end, end):
                continue
            with Split(file.path, file.start, offset, file.end, newest=file.newest, max_record=self.options.max_record_size,
                       mapped=self.options.io != "pread", whole_before=whole_before(self.broker.root)) as split:
                while split.first is None and not split.done:
                    split.skip(max_rows=1)
                return min(file.end if split.first is None else split.first, end)
        return offset

    def ahead(self, begin: int, end: int, rows: int | None, size: int | None) -> int:
        """How far from position `begin` so many chosen rows, or so many bytes of log, lead; at least over one record."""
        if rows is None and size is None:
            return end
        left_rows = (1 << 62) if rows is None else max(1, rows)
        left_size = (1 << 62) if size is None else max(1, size)
        at = begin
        for split in self._walk(begin, end):
            with split:
                while not split.done and left_rows > 0 and left_size > 0:
                    got_rows, got_size = split.skip(max_rows=left_rows, max_bytes=left_size)
                    split.take_bad()
                    if not got_size and not split.done:
                        continue
                    at = split.position
                    if got_size and got_size < left_size and got_rows < left_rows and not split.done:
                        return at           # the next record would be too much
                    left_rows -= got_rows
                    left_size -= got_size
            if left_rows <= 0 or left_size <= 0:
                return min(at, end)
        return end

    def identity(self, position: int) -> Identity:
        """Which log a position is in, for check. Raises OSError."""
        return identity_of(self.broker, self.files(), position, self.options.io != "pread")

    def check(self, position: int, end: int, what: str = "the record with which a stream continues",
              anew: str = "begin with a new checkpoint", known: Identity | None = None) -> int:
        """The position to read from, given the one a reader stands at, and of which log it is. Reports what was lost; what,
        anew: words for it.

        Raises CorruptionError where retention deleted what was to be read, or the log was cut, unless failOnDataLoss=false, and
        StoreStateError where the log is another one.
        """
        if known is not None:
            refuse_another(self.broker, self.files(), known, end, anew)
        first = self.first()
        if first <= position <= end:
            return position
        lost = (f"the log begins at {first}: {first - position} bytes were deleted before they were read" if position < first
                else f"the log ends at {end}: it was cut, or is another one")
        if self.options.fail_on_data_loss:
            error = CorruptionError(self.broker.root, position, what, lost)
            error.cure = f"read with failOnDataLoss=false to continue with the messages that are left, or {anew}"
            raise error
        return first if position < first else end

    def _walk(self, begin: int, end: int) -> Iterator[Split]:
        for file in self.files():
            if file.end > begin and file.start < end:
                split = self._split(file, max(begin, file.start), min(end, file.end))
                split.choose(selectors=self.options.selectors(self.broker.name),
                             tags=None if self.options.tags is None else [t.encode() for t in self.options.tags],
                             sql=self.options.sql,
                             time_low=self.options.starting_timestamp, transactional=self.options.include_transactional)
                yield split

    def _split(self, file: LogFile, begin: int, end: int | None = None) -> Split:
        return Split(file.path, file.start, begin, file.end if end is None else end, newest=file.newest, aligned=True,
                     max_record=self.options.max_record_size, mapped=self.options.io != "pread",
                     whole_before=whole_before(self.broker.root))


def begin_of_new(logs: Sequence[LogPositions], known: Mapping[str, int]) -> dict[str, int]:
    """Where brokers begin that are beside known ones and were not read before, as newBrokers says.

    known: the positions there are; a broker that is away keeps its own. Raises ConfigError for newBrokers=fail, and where
    nothing is said and a known broker is away: the new one may be that one under another name, all read before.
    """
    new = [p for p in logs if p.broker.name not in known]
    if not new or not known:
        return {p.broker.name: p.first() for p in new}
    given = logs[0].options.new_brokers
    names = ", ".join(f"{p.broker.name} ({p.broker.root})" for p in new)
    away = sorted(set(known) - {p.broker.name for p in logs})
    if given == "fail" or (given is None and away):
        why = f", and {', '.join(away)} is missing: it may be the same store under another name" if away else ""
        raise ConfigError(f"broker {names} was not read before{why}: name stores as before, with path as JSON "
                          '{"broker name": "directory"}, or say where a new one begins, with newBrokers=earliest or latest')
    return {p.broker.name: p.end() if given == "latest" else p.first() for p in new}


def snapshot_ends(options: ReadOptions, left: bool = False) -> dict[str, int]:
    """Where each log ends now: what a batch read goes up to, however often it is run. left: with what recovery will cut."""
    return {broker.name: LogPositions(broker, options).end(over=True, left=left) for broker in options.brokers}

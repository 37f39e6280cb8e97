"""Places in logs that a stream goes by: where a log ends now, where a time begins, how far a limit leads. Without pyspark.

A position is a log offset at which a record begins, or will begin. Files are only read.
"""
from collections.abc import Iterator

from rmq_store.bulk._columns import Split
from rmq_store.errors import CorruptionError
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.stores import Broker, LogFile, log_files

__all__ = ["LogPositions"]


class LogPositions:
    """The log of one store, looked at again each time. One thread."""

    def __init__(self, broker: Broker, options: ReadOptions) -> None:
        self.broker = broker
        self.options = options
        self._known = -1            # a position that was good when the end was last looked for

    def files(self) -> list[LogFile]:
        return log_files(self.broker.root, holes=self.options.on_corrupt != "fail")

    def first(self) -> int:
        """The first position; 0 where there is no file yet."""
        files = self.files()
        return files[0].start if files else 0

    def end(self) -> int:
        """Behind the newest whole record. Walks from where it was last time, so an idle look costs one record's head."""
        files = self.files()
        if not files:
            return 0
        newest = next(f for f in files if f.newest)
        begin = self._known if newest.start <= self._known <= newest.end else newest.start
        if newest.first_time() is None:
            return newest.start
        with self._split(newest, begin) as split:
            while not split.done:
                split.skip()
                split.take_bad()
            self._known = min(split.position, newest.end)
        return self._known

    def of_time(self, milliseconds: int) -> int:
        """Of the first record whose storeTimestamp is not before; the end where there is none."""
        files = self.files()
        begin = 0
        for i, file in enumerate(files):
            first = file.first_time()
            if first is not None and first < milliseconds:
                begin = i
        for file in files[begin:]:
            with self._split(file, file.start) as split:
                split.choose(time_low=milliseconds)
                while not split.done:
                    found = split.batch(["physicalOffset"], max_rows=1)
                    split.take_bad()
                    if found is not None and found[0]:
                        return int.from_bytes(found[1]["physicalOffset"], "little")
        return self.end()

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

    def check(self, position: int, end: int) -> int:
        """The position to read from, given the one a stream stands at. Reports what was lost.

        Raises CorruptionError where retention deleted what was to be read, or the log was cut, unless failOnDataLoss=false.
        """
        first = self.first()
        if first <= position <= end:
            return position
        lost = (f"the log begins at {first}: {first - position} bytes were deleted before they were read" if position < first
                else f"the log ends at {end}: it was cut, or is another one")
        if self.options.fail_on_data_loss:
            error = CorruptionError(self.broker.root, position, "the record that a stream is to go on with", lost)
            error.cure = "read with failOnDataLoss=false to go on with what is there, or begin with a new checkpoint"
            raise error
        return first if position < first else end

    def _walk(self, begin: int, end: int) -> Iterator[Split]:
        for file in self.files():
            if file.end > begin and file.start < end:
                split = self._split(file, max(begin, file.start), min(end, file.end))
                split.choose(selectors=self.options.selectors(self.broker.name),
                             tags=None if self.options.tags is None else [t.encode() for t in self.options.tags],
                             time_low=self.options.starting_timestamp, transactional=self.options.include_transactional)
                yield split

    def _split(self, file: LogFile, begin: int, end: int | None = None) -> Split:
        return Split(file.path, file.start, begin, file.end if end is None else end, newest=file.newest, aligned=True,
                     max_record=self.options.max_record_size, mapped=self.options.io != "pread")

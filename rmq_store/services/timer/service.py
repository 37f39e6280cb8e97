"""Timer messages of one store: the wheel, its files, and config/timercheck (RocketMQ: TimerMessageStore).

    config/timercheck    seven numbers of 8 bytes: reading time, end of the timer log, next offset of the queue, the same offset
                         as its master has it, and stateVersion, timestamp, counter of a dataVersion; then zeros, but at byte 64
                         our mark and a seal, and behind them what is known while entries of the queue are read a
                         second time, then timer_precision_ms while messages wait; 4,096 bytes in all

The mark is a log offset: the copies behind it are those of the messages that the other numbers do not count as delivered, no
more and no fewer. The seal shows that nobody else has written the numbers since (RocketMQ leaves these bytes alone). Units that
were lost are made again from the queue. Until all are, three more numbers say: entries below a queue offset that were due
before a time are delivered, and units of those that were rolled came at a certain tick or later.

The service begins with the first timer message, or at open where the store has some. Control plane.
"""
import os
import struct
import time

from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.codec.timer import TIMER_TOPIC
from rmq_store.errors import CorruptionError, WheelTimerFlowControl
from rmq_store.events import Event, emit
from rmq_store.log.recovery.salvage import keep_stretch
from rmq_store.services.timer._wheel import TimerWheel
from rmq_store.services.timer.metrics import TimerMetrics

__all__ = ["CHECK", "TimerService", "copy_check", "kept_precision", "load_check", "log_starts", "mark", "promote_check"]

CHECK, CHECK_SIZE = struct.Struct(">7q"), 4096
MARK, AT_MARK = struct.Struct(">2q"), 64
AGAIN, AT_AGAIN = struct.Struct(">3q"), 80
PRECISION, AT_PRECISION = struct.Struct(">q"), 104
SEAL = 0x54494D45524D4152
WHEEL_SIZE = 38_707_200
PAGES_AT_ONCE = 64              # of the wheel: copied without a pause for other threads
PRECISION_LEAST, PRECISION_MOST = 10, 60_000        # of the option
LEARN_MAX = 1 << 30             # bytes of the log that an open reads behind the mark
MARK_STEP = 64 << 20            # so far the mark may lie behind while nothing is delivered


def mark(files: ControlFiles, root: str, precision: int) -> None:
    """Before the first timer message is stored: the next open must see that there may be some, and how long its slot is. Raises
    OSError."""
    if not os.path.exists(os.path.join(root, "config", "timercheck")):
        files.make_dirs(os.path.join(root, "config"))
        _save(files, root, (0,) * 7, precision)
    elif not kept_precision(root) and len(data := bytearray(_read_check(root))) >= AT_PRECISION + PRECISION.size:
        PRECISION.pack_into(data, AT_PRECISION, precision)
        files.write_new(os.path.join(root, "config"), "timercheck", bytes(data))


def kept_precision(root: str) -> dict[str, int]:
    """The timer_precision_ms of the messages that wait, as an option; empty where none waits or nobody wrote it. A message
    has the begin of its slot alone, so a shorter slot would end before its time. Raises OSError."""
    data = _read_check(root)
    found = PRECISION.unpack_from(data, AT_PRECISION)[0] if len(data) >= AT_PRECISION + PRECISION.size else 0
    return {"timer_precision_ms": found} if PRECISION_LEAST <= found <= PRECISION_MOST else {}


def _read_check(root: str) -> bytes:
    path = os.path.join(root, "config", "timercheck")
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return bytes(CHECK_SIZE)
    try:
        return os.pread(fd, CHECK_SIZE, 0)
    finally:
        os.close(fd)


def load_check(root: str) -> tuple[int, ...]:
    """The numbers of config/timercheck; zeros where it is not there. Raises CorruptionError."""
    data = _read_check(root)[:CHECK.size]
    if len(data) < CHECK.size or min(found := CHECK.unpack(data)) < 0:
        raise CorruptionError(os.path.join(root, "config", "timercheck"), 0, "seven numbers of 8 bytes, none below 0; once it "
                              "is moved away, timer messages that were delivered already may be delivered again",
                              data.hex() or "nothing")
    return found


def load_mark(root: str) -> tuple[int | None, tuple[int, int, int] | None]:
    """The mark of config/timercheck, and what it knows of entries that are read a second time. None: there is none that belongs
    to its numbers."""
    data = _read_check(root)
    if len(data) < AT_AGAIN + AGAIN.size:
        return None, None
    (mark, seal), again = MARK.unpack_from(data, AT_MARK), AGAIN.unpack_from(data, AT_AGAIN)
    if min(mark, *again) < 0 or seal != _seal(CHECK.unpack_from(data), mark, again):
        return None, None
    return mark, again if any(again) else None


def _seal(check: tuple[int, ...], mark: int, again: tuple[int, ...]) -> int:
    sealed = SEAL ^ check[0] ^ check[1] ^ check[2] ^ mark ^ (3 * again[0] + 5 * again[1] + 7 * again[2])
    return (sealed + (1 << 63)) % (1 << 64) - (1 << 63)


def log_starts(directory: str) -> list[int]:
    """Where the files of a timer log begin."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if len(name) == 20 and name.isascii() and name.isdigit())


def _save(files: ControlFiles, root: str, check: tuple[int, ...], precision: int, mark: int | None = None,
          again: tuple[int, int, int] | None = None) -> None:
    data = CHECK.pack(*check)
    if mark is not None:
        # A tick of 0 is no other than one of 1, and three zeros say that nothing is read a second time.
        more = (*again[:2], max(again[2], 1)) if again else (0, 0, 0)
        data = data.ljust(AT_MARK, b"\0") + MARK.pack(mark, _seal(check, mark, more)) + AGAIN.pack(*more)
    data = data.ljust(AT_PRECISION, b"\0") + PRECISION.pack(precision)
    files.write_new(os.path.join(root, "config"), "timercheck", data.ljust(CHECK_SIZE, b"\0"))


def copy_check(files: ControlFiles, root: str, check: tuple[int, ...]) -> None:
    """Keeps on a slave how far its master is: `check` are the master's numbers. The slave has no timer log, so its own end of
    it and its own offset in the queue stay 0: a Java broker then loses no message. Durable when it returns. Raises OSError."""
    read_ms, _, offset, _, *version = check
    kept = (read_ms, 0, 0, offset, *version)
    if _read_check(root)[:CHECK.size] != CHECK.pack(*kept):
        _save(files, root, kept, kept_precision(root).get("timer_precision_ms", 0))


def promote_check(files: ControlFiles, root: str, low: int, end: int) -> bool:
    """Before a slave becomes a master: what its master had delivered counts as delivered. These are the entries of the queue
    that the master had read and that were due before its reading time, and every message of which the log, from `low` to `end`,
    has a copy. False where the directory has no timer messages. Durable when it returns. Raises CorruptionError, OSError."""
    path = os.path.join(root, "config", "timercheck")
    if not os.path.exists(path) and not os.path.isdir(os.path.join(root, "consumequeue", TIMER_TOPIC)):
        return False
    if load_mark(root)[0] is not None:          # this was done before, or a store of its own wrote it
        return True
    check = load_check(root)
    files.make_dirs(os.path.dirname(path))
    _save(files, root, (check[0], 0, 0, 0, *check[4:]), kept_precision(root).get("timer_precision_ms", 0),
          max(low, end - LEARN_MAX, 0), (check[3], check[0], 0))
    return True


class TimerService:
    """What a store with timer messages has; one thread starts, writes and stops it, any thread admits."""

    def __init__(self, store: StoreWait, files: ControlFiles) -> None:
        self._files, self._root, self._limit = files, store.path, store.options.timer_congest_num_each_slot
        self._directory, self._size = os.path.join(store.path, "timerlog"), store.options.timer_log_file_bytes
        self._seen, self._stale = (0, 0), True      # nobody knows what of the files was synced, and timerwheel is not read
        files.make_dirs(self._directory)
        files.make_dirs(os.path.join(store.path, "config"))
        self._store, self._check = store, load_check(store.path)
        known, again = load_mark(store.path)
        self._precision = store.options.timer_precision_ms
        mark(files, store.path, self._precision)
        self._metrics = TimerMetrics(store, files)
        self._wheel_fd = files.open(os.path.join(store.path, "timerwheel"), os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(self._wheel_fd).st_size != WHEEL_SIZE:
                files.truncate(self._wheel_fd, WHEEL_SIZE)
            self.wheel = TimerWheel(store, self._directory, self._starts(),
                                    (self._check[0], self._check[1], self._check[2], known, again), LEARN_MAX)
            if self.wheel.unread:
                emit(Event.TIMER_COPIES_UNREAD, path=store.path, bytes=self.wheel.unread, limit=LEARN_MAX)
            if self.wheel.damaged_at is not None:
                self._cut(self.wheel.damaged_at)
            read_ms, end, offset, self._mark, _, self._again = self.wheel.counted()
            # What is delivered before the next write can be told by it, and whoever dies while units are made again goes on.
            if known is None or self._again or end < self._check[1]:
                self._check = (read_ms, min(end, self._check[1]), offset, offset, *self._check[4:])
                self._save(self._check, self._mark, self._again)
            self.wheel.start()
        except BaseException:
            files.close(self._wheel_fd)
            raise

    @staticmethod
    def wanted(store: StoreWait) -> bool:
        """Whether the store has, or had, timer messages."""
        return bool(store.options.timer_wheel_enable) and any(os.path.exists(os.path.join(store.path, *parts)) for parts in (
            ("config", "timercheck"), ("consumequeue", TIMER_TOPIC), ("timerlog",)))

    def admit(self, time_ms: int) -> None:
        """RocketMQ's isReject. Raises WheelTimerFlowControl."""
        count, limit = self.wheel.count(time_ms), self._limit
        if count <= limit:
            return
        if count >= 2 * limit or int.from_bytes(os.urandom(4), "big") % 1000 > 1000 * (count - limit) / (limit + 0.1):
            raise WheelTimerFlowControl(f"{count} timer messages are due in the slot of {time_ms} ms, and "
                                        f"timer_congest_num_each_slot is {limit}: choose another time, or put later")

    def write(self, *, last: bool = False) -> None:
        """Writes wheel and timercheck, when what they count is on the device, and deletes files of the timer log that no
        message needs. Raises OSError."""
        self._say()
        read_ms, end, offset, mark, keep, again = self.wheel.counted()
        if self._store._position("wrote") - mark >= MARK_STEP:
            self.wheel.poke()           # it sleeps while nothing waits, and others put: it counts anew
        if last and self._waits_none():
            self._precision, self._stale = 0, True      # the next open may choose
        if ((read_ms, end, offset) != self._check[:3] or again != self._again or self._stale
                or mark - self._mark >= (1 if last else MARK_STEP)):
            self._write_counted(end)
            check = (read_ms, end, offset, offset, self._check[4], int(time.time() * 1000), self._check[6] + 1)
            self._save(check, mark, again)
            self._check, self._mark, self._again, self._stale = check, mark, again, False
        self._delete(keep)
        self._metrics.write(self.wheel)

    def _waits_none(self) -> bool:
        return not self.wheel.waits() and self._store._position("dispatched") >= self._store._position("wrote")

    def _save(self, check: tuple[int, ...], mark: int, again: bool) -> None:
        # What is not on the device yet may be lost, and what comes then lies before the mark.
        _save(self._files, self._root, check, self._precision, min(mark, self._store._position("flushed")),
              self.wheel.again() if again else None)

    def _write_counted(self, end: int) -> None:
        """Makes durable what timercheck is going to say."""
        self.wheel.sync_delivered()
        if (end != self._check[1] or self._stale) and end > self.wheel.first():
            self._sync_log(end)
        page: int | None = 0
        written: list[int] = []
        try:
            while page is not None:
                pages, page = self.wheel.dirty_pages(page, PAGES_AT_ONCE)
                written += [place for place, _ in pages]
                for place, data in pages:
                    self._files.write(self._wheel_fd, place, data)
            if written:
                self._files.sync(self._wheel_fd)
        except OSError:
            self.wheel.mark_dirty(written)      # they are written anew, not only synced again
            raise

    def stop(self) -> None:
        """Delivers no more. What was delivered is written with the next `write`."""
        self.wheel.stop()

    def end(self, write: bool) -> None:
        """Writes for the last time, and closes the files."""
        try:
            if write:
                self.write(last=True)
                self._metrics.write(self.wheel, now=True)
        finally:
            self.wheel.close()
            fd, self._wheel_fd = self._wheel_fd, -1
            if fd >= 0:
                self._files.close(fd)

    def _say(self) -> None:
        _, _, skipped, failures, error, where = self.wheel.state()
        if skipped > self._seen[0]:
            emit(Event.TIMER_SKIPPED, path=self._root, count=skipped - self._seen[0], offset=where)
        if failures > self._seen[1]:
            emit(Event.TIMER_REPEATED, path=self._root, count=failures - self._seen[1], errno=error)
        self._seen = (skipped, failures)

    def _file(self, start: int) -> str:
        return os.path.join(self._directory, f"{start:020d}")

    def _sync_log(self, end: int) -> None:
        """The file that ends there, or has its last unit: the timer's thread synced those before."""
        first = self.wheel.first()
        fd = self._files.open(self._file(end - 1 - (end - 1 - first) % self._size), os.O_RDWR)
        try:
            self._files.sync(fd)
        except OSError as error:
            self.wheel.died(error.errno or 5)       # what the failed sync left unwritten is never reported again
            raise
        finally:
            self._files.close(fd)

    def _delete(self, unneeded: int) -> None:
        first = start = self.wheel.first()
        if unneeded <= first:
            return
        self.wheel.forget(first + (unneeded - first) // self._size * self._size)
        while start < self.wheel.first():
            self._files.unlink(self._file(start))
            start += self._size
        self._files.sync_dir(self._directory)

    def _starts(self) -> list[int]:
        starts = log_starts(self._directory)
        for i, start in enumerate(starts):
            length = os.stat(self._file(start)).st_size
            if start == starts[0] + i * self._size and length < self._size and i == len(starts) - 1:
                self._lengthen(start)       # a crash came before it had its length, or in the middle of a cut
            elif start != starts[0] + i * self._size or length != self._size:
                raise CorruptionError(self._file(start), None, f"a file of {self._size} bytes (timer_log_file_bytes) that "
                                      "follows the one before", f"{length} bytes")
        return starts

    def _lengthen(self, start: int) -> None:
        fd = self._files.open(self._file(start), os.O_RDWR)
        try:
            self._files.truncate(fd, self._size)
            self._files.sync(fd)
        finally:
            self._files.close(fd)

    def _cut(self, at: int) -> None:
        """What is behind the last good unit goes, and a copy stays. The last file goes first: what is left is a timer log."""
        copies = []
        for start in reversed(log_starts(self._directory)):
            if start + self._size <= at:
                break
            begin = max(at - start, 0)
            fd = self._files.open(self._file(start), os.O_RDWR)
            try:
                if self._files.read(fd, begin, self._size - begin).strip(b"\0"):
                    copies.append(keep_stretch(
                        self._files, self._root, f"timerlog-{start + begin:020d}",
                        lambda low, high, fd=fd: self._files.read(fd, low, high - low),     # type: ignore[misc]
                        lambda low, high: low, (begin, self._size)))
                if begin > 0:
                    self._files.truncate(fd, begin)
                    self._files.truncate(fd, self._size)
                    self._files.sync(fd)
                else:
                    self._files.unlink(self._file(start))
            finally:
                self._files.close(fd)
        self._files.sync_dir(self._directory)
        self.wheel.cut()
        emit(Event.TIMER_LOG_CUT, path=self._root, offset=at, copy=", ".join(reversed(copies)) or "nothing, as it was zeros")

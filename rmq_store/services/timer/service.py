"""Timer messages of one store: the wheel, its files, and config/timercheck (upstream: TimerMessageStore).

The service begins with the first timer message, or at open where the store has some. Control plane.
"""
import os
import random
import struct
import time

from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.errors import CorruptionError, WheelTimerFlowControl
from rmq_store.services.timer._wheel import TimerWheel

__all__ = ["TimerService", "mark"]

CHECK, CHECK_SIZE = struct.Struct(">7q"), 4096
WHEEL_SIZE = 38_707_200


def mark(files: ControlFiles, root: str) -> None:
    """Before the first timer message is stored: the next open must see that there may be some. Raises OSError."""
    if not os.path.exists(os.path.join(root, "config", "timercheck")):
        files.make_dirs(os.path.join(root, "config"))
        _save(files, root, (0,) * 7)


def _save(files: ControlFiles, root: str, check: tuple[int, ...]) -> None:
    files.write_new(os.path.join(root, "config"), "timercheck", CHECK.pack(*check).ljust(CHECK_SIZE, b"\0"))


class TimerService:
    """What a store with timer messages has; one thread starts, writes and stops it, any thread admits."""

    def __init__(self, store: StoreWait, files: ControlFiles) -> None:
        self._files, self._root, self._limit = files, store.path, store.options.timer_congest_num_each_slot
        self._directory = os.path.join(store.path, "timerlog")
        files.make_dirs(self._directory)
        files.make_dirs(os.path.join(store.path, "config"))
        self._check = self._load()
        mark(files, store.path)
        self._wheel_fd = files.open(os.path.join(store.path, "timerwheel"), os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(self._wheel_fd).st_size != WHEEL_SIZE:
                files.write(self._wheel_fd, WHEEL_SIZE - 1, b"\0")
            self.wheel = TimerWheel(store, self._directory, self._starts(store.options.timer_log_file_bytes),
                                    (self._check[2], self._check[0]))
            self.wheel.start()
        except BaseException:
            files.close(self._wheel_fd)
            raise

    @staticmethod
    def wanted(store: StoreWait) -> bool:
        """Whether the store has, or had, timer messages."""
        return bool(store.options.timer_wheel_enable) and os.path.exists(os.path.join(store.path, "config", "timercheck"))

    def admit(self, time_ms: int) -> None:
        """Upstream's isReject. Raises WheelTimerFlowControl."""
        count, limit = self.wheel.count(time_ms), self._limit
        if count <= limit:
            return
        if count >= 2 * limit or random.randrange(1000) > 1000 * (count - limit) / (limit + 0.1):
            raise WheelTimerFlowControl(f"{count} timer messages are due in the slot of {time_ms} ms, and "
                                        f"timer_congest_num_each_slot is {limit}: choose another time, or put later")

    def write(self) -> None:
        """Writes wheel and timercheck, when what they count is on the device. Raises OSError."""
        read_ms, end, offset = self.wheel.position()
        for place, page in self.wheel.dirty_pages():
            self._files.write(self._wheel_fd, place, page)
        check = (read_ms, end, offset, *self._check[3:5], int(time.time() * 1000), self._check[6] + 1)
        if check[:3] == self._check[:3]:
            return
        _save(self._files, self._root, check)
        self._check = check

    def stop(self) -> None:
        """Delivers no more. What was delivered is written with the next `write`."""
        self.wheel.stop()

    def end(self, write: bool) -> None:
        """Writes for the last time, and closes the files."""
        try:
            if write:
                self.write()
        finally:
            self.wheel.close()
            fd, self._wheel_fd = self._wheel_fd, -1
            if fd >= 0:
                self._files.close(fd)

    def _starts(self, size: int) -> list[int]:
        names = sorted(name for name in os.listdir(self._directory) if len(name) == 20 and name.isdigit())
        for i, name in enumerate(names):
            path = os.path.join(self._directory, name)
            length = os.stat(path).st_size
            if int(name) == int(names[0]) + i * size and length == 0 and i == len(names) - 1:
                self._files.unlink(path)        # a crash came before it had its length
                return [int(name) for name in names[:-1]]
            if int(name) != int(names[0]) + i * size or length != size:
                raise CorruptionError(path, None, f"a file of {size} bytes (timer_log_file_bytes) that follows the one before",
                                      f"{length} bytes")
        return [int(name) for name in names]

    def _load(self) -> tuple[int, ...]:
        path = os.path.join(self._root, "config", "timercheck")
        try:
            fd = open_regular(path)
        except FileNotFoundError:
            return (0,) * 7
        try:
            data = os.pread(fd, CHECK.size, 0)
        finally:
            os.close(fd)
        if len(data) < CHECK.size or min(found := CHECK.unpack(data)) < 0:
            raise CorruptionError(path, 0, "seven numbers of 8 bytes, none below 0; once it is moved away, timer messages that "
                                  "were delivered already may be delivered again", data.hex() or "nothing")
        return found

"""A process that puts until it is killed, and says in the disk's log what it was told: marks, one JSON line each."""
import contextlib
import ctypes
import errno
import json
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmq_store import MessageStore
from rmq_store.errors import RmqStoreError
from tests.power.messages import Message, message, who
from tests.power.reading import read_queues
from tests.power.scenarios import Scenario

PRODUCERS = 3
LIFE = 10                       # producers of the next life begin here
DELETER = 9
GROUP = "group"
MARK_MESSAGES = 200             # one request to the disk each
MUCH_BYTES = 32 << 20
DATA_BYTES = 512 << 10        # no file system writes its journal in such pieces
SYNC_FILE_RANGE_WRITE = 2


class Marks:
    """Where a process says what it knows; None: nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._fd = None if path is None else os.open(path, os.O_WRONLY)

    def tell(self, kind: str, *values: Any) -> None:
        if self._fd is not None:
            os.write(self._fd, json.dumps([kind, *values]).encode() + b"\n")

    def durable(self, those: list[tuple[Any, ...]]) -> None:
        for at in range(0, len(those), MARK_MESSAGES):
            self.tell("durable", those[at:at + MARK_MESSAGES])


def work(scenario: Scenario, seed: int, life: int, seconds: float, root: Path, disk: Path) -> None:
    """One life; disk: where marks and commands for the disk go. Returns with the store open, to be killed."""
    told = Marks(disk / "marks")
    told.tell("life", life)
    try:
        store = MessageStore.open(root, **scenario.options)
    except OSError as error:
        if scenario.trouble and error.errno == errno.EROFS:     # the file system gave up, and nothing was told
            return
        raise
    if life:
        tell_found(store, told)
    run = Run(scenario, seed, life, store, told, disk, time.monotonic() + seconds)
    threads = [threading.Thread(target=run.watched, args=(run.produce, LIFE * life + p)) for p in range(PRODUCERS)]
    threads += [threading.Thread(target=run.watched, args=(getattr(run, name),)) for name in sorted(scenario.does - {"delay"})]
    if scenario.trouble and life == 0:
        threads.append(threading.Thread(target=run.watched, args=(run.trouble,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if life == scenario.lives - 1:
        told.tell("end")


def tell_found(store: MessageStore, told: Marks) -> None:
    """What a process finds after another was killed, and flushes, is durable."""
    end = store.flush()
    told.tell("opened", end)
    those = [(*known, topic, queue_id, m.queue_offset, m.offset)
             for (topic, queue_id), messages in read_queues(store)[0].items() for m in messages
             if (known := who(m.body)) is not None and m.offset < end]
    told.durable([t for t in those if not t[2].startswith(("SCHEDULE", "%", "gone"))])


@dataclass
class Run:
    scenario: Scenario
    seed: int
    life: int
    store: MessageStore
    told: Marks
    disk: Path
    end: float
    broken: bool = False

    @property
    def over(self) -> bool:
        return self.broken or time.monotonic() > self.end

    def watched(self, part: Any, *arguments: Any) -> None:
        """A thread's work; what goes wrong is a mark, and a finding."""
        try:
            part(*arguments)
        except BaseException as error:
            self.broken = True
            expected = self.scenario.trouble == "refuses" and self.life == 0 and isinstance(error, (RmqStoreError, OSError))
            if not expected:
                self.told.tell("failed", traceback.format_exc())

    def produce(self, producer: int) -> None:
        Producer(self, producer).run()

    def trouble(self) -> None:
        """The disk gets slow once much of the log waits to be written back, so that as much again is put meanwhile."""
        while not self.over and self.store.max_log_offset < MUCH_BYTES:
            time.sleep(0.001)
        (self.disk / "control").write_text("slow 40000")
        if self.scenario.trouble == "refuses":
            (self.disk / "control").write_text(f"fail-writes 8 {DATA_BYTES}")

    def clean(self) -> None:
        while not self.over:
            time.sleep(0.15)
            self.told.tell("clean", self.store.max_log_offset)
            self.store.clean(hours=0)

    def delete(self) -> None:
        number = 0
        while not self.over:
            topic = f"gone{self.life}-{number}"
            for _ in range(10):
                m = message(self.seed, LIFE * self.life + DELETER, number, self.scenario.body_max)
                self.store.put(topic, m.body, **m.arguments())
                number += 1
            self.store.wait_dispatched(5)
            self.told.tell("delete", topic)
            self.store.delete_topics(topic)

    def consumer(self) -> None:
        done: dict[tuple[str, int], int] = {}
        with self.store.consumer(GROUP, ["orders", "bills"]) as consumer:
            batches = 0
            while not self.over:
                batch = consumer.poll(timeout=0.1)
                if batch is None:
                    continue
                self.told.tell("handed", batch.topic, batch.queue_id, batch.end)
                batch.ack()
                done[batch.topic, batch.queue_id] = batch.end
                batches += 1
                if batches % 5 == 0:
                    self.store.offsets.flush()
                    self.told.tell("committed", [[*queue, end] for queue, end in done.items()])


class Producer:
    """Puts its messages in order, by every call there is, and tells which ones it was told to be durable."""

    def __init__(self, run: Run, producer: int) -> None:
        self.run_, self.producer = run, producer
        self.store, self.told, self.scenario = run.store, run.told, run.scenario
        self.random = random.Random(f"{run.seed} {producer}")
        self.number = 0
        self.pending: list[tuple[Any, ...]] = []            # put, and not known to be durable: (producer, number, place)
        self.futures: list[tuple[int, Message, Any]] = []

    def run(self) -> None:
        while not self.run_.over and self.number < self.scenario.messages:
            chance = self.random.random()
            if "delay" in self.scenario.does and self.number % 3 == 0:
                self.delayed()
            elif chance < 0.15 and "delay" not in self.scenario.does:
                self.many()
            elif self.producer % LIFE == 2 and not self.scenario.early:
                self.asynchronous()
            else:
                self.one()
            if not self.scenario.sync:
                self.sometimes_flush()
        self.settle(0)

    def next(self) -> Message:
        self.number += 1
        return message(self.run_.seed, self.producer, self.number - 1, self.scenario.body_max)

    def remember(self, number: int, m: Message, queue_offset: int, offset: int) -> None:
        self.pending.append((self.producer, number, m.topic, m.queue_id, queue_offset, offset))

    def is_durable(self, end: int) -> None:
        """All before this log offset is."""
        self.told.durable([place for place in self.pending if place[-1] < end])
        self.pending = [place for place in self.pending if place[-1] >= end]

    def one(self) -> None:
        wait = not self.scenario.sync and not self.scenario.trouble and self.random.random() < 0.02
        m = self.next()
        put = self.store.put(m.topic, m.body, queue_id=m.queue_id, wait=wait or None, **m.arguments())
        self.remember(self.number - 1, m, put.queue_offset, put.offset)
        if put.status.name == "PUT_OK" and (wait or self.scenario.sync or self.scenario.early):
            self.is_durable(put.offset + put.size)

    def many(self) -> None:
        count = self.random.randrange(1, 7)
        first = self.next()
        those = [first] + [replace(self.next(), topic=first.topic, queue_id=first.queue_id) for _ in range(count - 1)]
        put = self.store.put_many(first.topic, [m.in_batch() for m in those], queue_id=first.queue_id)
        for i, m in enumerate(those):
            self.remember(self.number - count + i, m, put.queue_offsets[i], put.offsets[i])
        if put.status.name == "PUT_OK" and (self.scenario.sync or self.scenario.early):
            self.is_durable(put.offsets[-1] + 1)

    def asynchronous(self) -> None:
        m = self.next()
        self.futures.append((self.number - 1, m, self.store.put_async(m.topic, m.body, queue_id=m.queue_id, **m.arguments())))
        if len(self.futures) >= 16:
            self.settle(8)

    def settle(self, left: int) -> None:
        """Waits for futures until so many are left."""
        while len(self.futures) > left:
            number, m, future = self.futures.pop(0)
            put = future.result(60)
            self.remember(number, m, put.queue_offset, put.offset)
            if put.status.name == "PUT_OK" and self.scenario.sync:
                self.is_durable(put.offset + put.size)

    def delayed(self) -> None:
        m = self.next()
        put = self.store.put(m.topic, m.body, queue_id=m.queue_id, delay_level=1 + self.number % 2, wait=True, **m.arguments())
        if put.status.name == "PUT_OK":
            self.told.tell("delayed", self.producer, self.number - 1)

    def sometimes_flush(self) -> None:
        if self.scenario.early or self.scenario.trouble:
            return
        chance = self.random.random()
        if chance < 0.005:
            self.settle(0)
            self.is_durable(self.store.flush())
        elif chance < 0.05:
            time.sleep(0.002)


@contextlib.contextmanager
def stirring(root: Path, seed: int) -> Iterator[None]:
    """Write-back without a flush, as the kernel does after half a minute: parts of the files that were written last, all the
    time."""
    child = os.fork()
    if child == 0:
        _stir(root, random.Random(seed))
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _stir(root: Path, rnd: random.Random) -> None:
    write_back = ctypes.CDLL(None).sync_file_range
    write_back.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    while True:
        files = [Path(directory) / name for directory, _, names in os.walk(root) for name in names]
        with contextlib.suppress(OSError):
            files = sorted(files, key=os.path.getmtime)[-12:]
        for path in rnd.sample(files, min(6, len(files))):
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDWR)
                begin = rnd.randrange(os.fstat(fd).st_size + 1) // 4096 * 4096 if rnd.random() < 0.3 else 0
                write_back(fd, begin, rnd.choice((0, 0, 4096, 65536)), SYNC_FILE_RANGE_WRITE)
                os.close(fd)
        time.sleep(0.002)

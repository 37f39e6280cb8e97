"""`kill -9` of a master at a random instant, promotion of its slave, and the judgement of what the slave has, in a loop.

    python -m tests.replication.failover [--cycles 200] [--seed 1] [--mode sync_master|master] [--dir DIR]

The master is a broker in a process of its own, with several put_async in flight and a group that commits. It writes a line into
a pipe for each put that returned PUT_OK and for each commit, so what it acknowledged is known outside of it. The slave, in this
process, follows it, copies its metadata, and is promoted by rmq_store.promote when the master is dead. Judged by the promoted
store:

- sync_master: no acknowledged message is missing. master: those that are missing lie at promote's max_log_offset or behind, no
other;
- every queue has the messages 0, 1, 2, ... in their order, without a gap and without one that nobody sent;
- the group continues at an offset that it had committed, and within the queue.

The promoted directory is the master's of the next cycle, and an empty slave joins it, KEPT times; then all begins anew. Exit
code 1: a cycle was judged wrong. The seed repeats the instants as well as it can.
"""
import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rmq_store import Broker, MessageStore, promote
from rmq_store.status import PutStatus
from tests.soon import until

TOPIC, GROUP, QUEUES, WINDOW, KEPT = "F", "G", 3, 8, 12
OPTIONS: dict[str, Any] = {
    "segment_size_bytes": 1 << 17, "index_slots": 100, "index_entries_max": 4000, "consumequeue_file_size_bytes": 20 * 300,
    "message_size_max_bytes": 1 << 15, "timer_wheel_enable": False, "ha_send_heartbeat_interval_ms": 200,
    "pool_window_size_bytes": 1 << 15}
LOOKS = 60_000


def body_of(queue: int, number: int) -> bytes:
    return b"%d:%d:" % (queue, number) + bytes([65 + number % 26]) * ((queue * 37 + number * 101) % 700)


# ---- the process that is killed

def lead(path: str, mode: str, seed: int, told: Any, go: Any) -> None:
    """Puts and commits until somebody kills it. told: the writing end of the pipe; go: set when a slave has joined."""
    with Broker.open(path, namesrv_listen=None, role=mode, ha_listen="127.0.0.1:0", slave_timeout_ms=30_000,
                     **OPTIONS) as broker:
        store, fd = broker.store, told.fileno()
        os.write(fd, f"at {store.replication().address} {broker.address}\n".encode())
        go.wait()
        r = random.Random(seed)
        room = threading.Semaphore(WINDOW)
        numbers = [store.max_offset(TOPIC, queue) for queue in range(QUEUES)]

        def done(queue: int, number: int, future: Any) -> None:
            result = future.result()
            if result.status == PutStatus.PUT_OK:
                os.write(fd, b"put %d %d %d\n" % (queue, number, result.offset))
            room.release()

        while True:
            queue = r.randrange(QUEUES)
            room.acquire()
            number = numbers[queue]
            numbers[queue] += 1
            future = store.put_async(TOPIC, body_of(queue, number), queue_id=queue, keys=f"{queue}-{number}")
            future.add_done_callback(lambda future, queue=queue, number=number: done(queue, number, future))
            if number % 5 == 4:
                end = store.max_offset(TOPIC, queue)
                os.write(fd, b"commit %d %d\n" % (queue, end))      # first, so that a copy is never ahead of what is known
                store.offsets.commit(GROUP, TOPIC, queue, end)


# ---- a cycle

class Cycle:
    """One master, one slave, one kill."""

    def __init__(self, base: Path, mode: str, seed: int, committed: set[tuple[int, int]]) -> None:
        self.master, self.slave = base / "master", base / "slave"
        self.mode, self.seed, self.r = mode, seed, random.Random(seed)
        self.puts: list[tuple[int, int, int]] = []      # queue, number, offset of what was acknowledged
        self.committed = committed

    def run(self) -> list[str]:
        """What is wrong; the promoted directory is at `master` then."""
        context = multiprocessing.get_context("forkserver")
        reads, writes = os.pipe()
        go = context.Event()
        process = context.Process(target=lead, args=(str(self.master), self.mode, self.seed, _Sent(writes), go))
        process.start()
        os.close(writes)
        try:
            with open(reads, "rb", buffering=0) as pipe:
                self._live(process, pipe, go)
        finally:
            process.kill()
            process.join()
        done = promote(self.slave, to=self.mode, **OPTIONS)
        wrong = self._judge(done.max_log_offset)
        shutil.rmtree(self.master)
        self.slave.rename(self.master)
        return wrong

    def _live(self, process: Any, pipe: Any, go: Any) -> None:
        lines = _Lines(pipe)
        first = lines.one().split()
        if first[:1] != ["at"]:
            raise RuntimeError(f"the master did not begin: {first}")
        _, ha, broker = first
        with MessageStore.open(self.slave, role="slave", ha_master=ha, ha_master_broker=broker, ha_metadata_interval_ms=100,
                               **OPTIONS) as s:
            until(lambda: s.replication().state == "follows" or s.replication().received_bytes > 0, LOOKS)
            go.set()
            for _ in range(self.r.choice((0, 1, 5, 20, 60, 200))):
                self._take(lines.one())
            time.sleep(self.r.random() * 0.004)         # chooses an instant; what is judged does not depend on it
            process.kill()
            for line in lines.rest():
                self._take(line)
            until(lambda: s.replication().state == "waits", LOOKS)

    def _take(self, line: str) -> None:
        what, *numbers = line.split()
        if what == "put":
            self.puts.append(tuple(map(int, numbers)))      # type: ignore[arg-type]
        else:
            self.committed.add((int(numbers[0]), int(numbers[1])))

    def _judge(self, end: int) -> list[str]:
        wrong = []
        with MessageStore.open(self.slave, **OPTIONS) as p:
            for queue in range(QUEUES):
                low, high = max(p.min_offset(TOPIC, queue), 0), p.max_offset(TOPIC, queue)
                found = [(m.queue_offset, bytes(m.body)) for m in p.scan(TOPIC, queue)]
                if found != [(n, body_of(queue, n)) for n in range(low, high)]:
                    wrong.append(f"queue {queue} has other messages than {low} to {high}, in this order: "
                                 f"{[n for n, _ in found]}")
                offset = p.offsets.query(GROUP, TOPIC, queue)
                if offset > high:
                    wrong.append(f"the group continues at {offset} of queue {queue}, which ends at {high}")
                elif offset >= 0 and offset != high and (queue, offset) not in self.committed:
                    wrong.append(f"the group continues at {offset} of queue {queue}, and never committed that")
                missing = [(number, at) for q, number, at in self.puts if q == queue and number >= high]
                if self.mode == "sync_master" and missing:
                    wrong.append(f"acknowledged and missing, queue {queue}, (number, log offset): {missing}")
                wrong += [f"message {number} of queue {queue} is missing, and lay at {at}, before the end {end} that promote "
                          "named"
                          for number, at in missing if at < end]
                wrong += [f"message {number} of queue {queue} lay at {at} on the master, and is not there"
                          for q, number, at in self.puts if q == queue and low <= number < high and _at(p, queue, number) != at]
            if p.max_log_offset != end:
                wrong.append(f"promote named the end {end}, and the log ends at {p.max_log_offset}")
        return wrong


def _at(store: MessageStore, queue: int, number: int) -> int:
    entry = store.raw_entry(TOPIC, queue, number)
    return -1 if entry is None else entry[0]


class _Lines:
    """Whole lines of a pipe."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self._data = pipe, b""

    def one(self) -> str:
        while b"\n" not in self._data:
            more = self._pipe.read(1 << 16)
            if not more:
                raise RuntimeError("the master ended by itself")
            self._data += more
        line, self._data = self._data.split(b"\n", 1)
        return line.decode()

    def rest(self) -> list[str]:
        while more := self._pipe.read(1 << 16):
            self._data += more
        return [line.decode() for line in self._data.split(b"\n")[:-1]]


class _Sent:
    """A descriptor for another process."""

    def __init__(self, fd: int) -> None:
        self.fd: Any = fd

    def __getstate__(self) -> Any:
        from multiprocessing.reduction import DupFd

        return DupFd(self.fd)

    def __setstate__(self, state: Any) -> None:
        self.fd = state.detach()

    def fileno(self) -> int:
        return int(self.fd)


def campaign(base: Path, cycles: int, seed: int, mode: str) -> int:
    """Runs so many cycles; returns how many were judged wrong."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.replication.failover", "rmq_store.broker.serving",
                                                                      "rmq_store.replication.metadata"])
    r, bad, puts, began = random.Random(seed), 0, 0, time.monotonic()
    committed: set[tuple[int, int]] = set()
    for number in range(cycles):
        if number % KEPT == 0:
            shutil.rmtree(base, ignore_errors=True)
            base.mkdir(parents=True)
            committed = set()
        cycle = Cycle(base, mode, r.randrange(1 << 32), committed)
        wrong = cycle.run()
        puts += len(cycle.puts)
        for what in wrong:
            print(f"cycle {number}, seed {cycle.seed}: {what}", flush=True)
        if wrong:
            bad += 1
            with contextlib.suppress(OSError):
                shutil.copytree(base, base.with_name(f"{base.name}-wrong-{number}"))
        if number % 100 == 99:
            print(f"{number + 1} cycles, {puts} acknowledged, {bad} wrong, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{cycles} cycles with {mode}, {puts} acknowledged, {bad} wrong")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replication.failover", description="kill -9 of a master, and "
                                     "promotion")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("RMQ_SEED", "1")))
    parser.add_argument("--mode", choices=("sync_master", "master"), default="sync_master")
    parser.add_argument("--dir", type=Path)
    args = parser.parse_args()
    here: Any = sys.modules["__main__"]
    here.__spec__ = here.__file__ = None        # else each process that is forked runs this module a second time
    with tempfile.TemporaryDirectory(prefix="rmq-failover-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK)
                                     else None) as place:
        from tests.replication import failover  # by its name, under which other processes find what they run

        return 1 if failover.campaign((args.dir or Path(place)) / "pair", args.cycles, args.seed, args.mode) else 0


if __name__ == "__main__":
    sys.exit(main())

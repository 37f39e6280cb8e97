"""`kill -9` in a loop: a process with four producers is killed at a random instant, its store held against a journal.

    python -m tests.crash.kill_loop [--cycles 50] [--seed 1] [--config mmap-async-msync ...] [--dir DIR]

The journal is a pipe to the parent: a producer writes one line when a put has returned, so what was acknowledged is known
outside of the killed process. Held against it: under synchronous flush, and under asynchronous flush on the mmap path, nothing
acknowledged is lost; on the pool under asynchronous flush only a suffix of the log is. Nothing is invented, out of order, or
missing from its queue. Every other kill is looked at with readonly=True, so that the next process meets the unrecovered store.
One directory lives through several kills. Exit code 1: something was lost; the seed repeats the instants, as well as it can.
"""
import argparse
import json
import logging
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from typing import Any

from rmq_store import MessageStore
from rmq_store.log.flush._uring import uring_probe

CONFIGS = ["mmap-sync-msync", "mmap-sync-fdatasync", "mmap-async-msync", "mmap-async-fdatasync",
           "pool-sync-fdatasync", "pool-async-fdatasync", "pool-sync-msync", "pool-async-msync"]
if uring_probe(tempfile.gettempdir())["setup"] == 0:
    CONFIGS += ["pool-sync-io_uring", "pool-async-io_uring"]
OPTIONS: dict[str, Any] = {
    "segment_size_bytes": 1 << 17, "index_slots": 500, "index_entries_max": 4000, "consumequeue_file_size_bytes": 20 * 300,
    "pool_window_size_bytes": 1 << 15, "message_size_max_bytes": 1 << 15, "flush_interval_ms": 20, "commit_interval_max_ms": 5,
    "consumequeue_flush_interval_ms": 30, "consumequeue_flush_interval_max_ms": 60,
}
TOPIC = "K"
BATCH, WINDOW = 5, 8
IN_FLIGHT = [1, 1, BATCH, WINDOW]       # of each producer: what may be stored and not acknowledged
KILLS_PER_DIRECTORY = 8
ACK = 28                                # bytes of one line


def body_of(producer: int, number: int) -> bytes:
    """Says by itself whether it is whole: what, length and checksum."""
    size = (producer * 37 + number * 101) % 900 + (4000 if number % 50 == 49 else 20)
    text = b"%d:%d:" % (producer, number) + bytes([65 + number % 26]) * size
    return text + b":%08x" % zlib.crc32(text)


def parse(body: bytes) -> tuple[int, int]:
    text, _, check = body.rpartition(b":")
    producer, number, _ = text.split(b":", 2)
    if int(check, 16) != zlib.crc32(text) or bytes(body) != body_of(int(producer), int(number)):
        raise ValueError(f"damaged body {bytes(body)[:40]!r}")
    return int(producer), int(number)


def options_of(root: str, config: str) -> dict[str, Any]:
    """With `-several` behind it a config has its log in two directories."""
    return {**OPTIONS, "commitlog_path": f"{root}/log1,{root}/log2"} if config.endswith("-several") else OPTIONS


# ---- the process that is killed

def produce(store: MessageStore, producer: int, number: int, journal: int) -> None:
    """Puts for ever, its own queue, numbers without a gap; each kind of producer uses another method."""
    def acknowledge(number: int, offset: int) -> None:
        os.write(journal, b"%1d %10d %14d\n" % (producer, number, offset))      # ACK bytes: atomic in a pipe

    def keys(number: int) -> str:
        return f"{producer}-{number}"

    while True:
        if producer == 2:
            some = [{"body": body_of(producer, number + i), "keys": keys(number + i)} for i in range(BATCH)]
            many = store.put_many(TOPIC, some, queue_id=producer)
            assert many.status == 0
            for i, offset in enumerate(many.offsets):
                acknowledge(number + i, offset)
            number += BATCH
        elif producer == 3:
            futures = [store.put_async(TOPIC, body_of(producer, number + i), queue_id=producer, keys=keys(number + i))
                       for i in range(WINDOW)]
            for i, future in enumerate(futures):
                result = future.result(60)
                assert result.status == 0
                acknowledge(number + i, result.offset)
            number += WINDOW
        else:
            result = store.put(TOPIC, body_of(producer, number), queue_id=producer, keys=keys(number))
            assert result.status == 0
            acknowledge(number, result.offset)
            number += 1


def victim(root: str, config: str, starts: list[int], journal: int) -> None:
    """The child: opens, tells so with an empty line, puts until it is killed."""
    write_path, flush_mode, backend = config.split("-")[:3]
    store = MessageStore.open(root, write_path=write_path, flush_mode=flush_mode, flush_backend=backend,
                              **options_of(root, config))
    os.write(journal, b"open".ljust(ACK - 1) + b"\n")
    for producer, number in enumerate(starts):
        threading.Thread(target=guarded, args=(store, producer, number, journal), daemon=True).start()
    signal.pause()


def guarded(store: MessageStore, producer: int, number: int, journal: int) -> None:
    try:
        produce(store, producer, number, journal)
    except BaseException as e:
        os.write(journal, f"!{type(e).__name__} {e}"[:ACK - 1].ljust(ACK - 1).encode("ascii", "replace") + b"\n")


def run_victim(root: str, config: str, starts: list[int], rnd: random.Random) -> tuple[list[tuple[int, int, int]], bool, str]:
    """Forks, kills at a random instant: (acknowledged (producer, number, offset), whether it came to open, its complaint)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            victim(root, config, starts, writer)
        finally:
            os._exit(3)
    os.close(writer)
    # Some die while they open, most after some acknowledgements and a little time.
    acks_wanted = 0 if rnd.random() < 0.15 else int(rnd.expovariate(1 / 300)) + 1
    pause_s = rnd.random() * 0.02
    data = b""
    deadline = time.monotonic() + 60
    while data.count(b"\n") <= acks_wanted and acks_wanted and time.monotonic() < deadline:
        ready, _, _ = select.select([reader], [], [], 1.0)
        part = os.read(reader, 1 << 16) if ready else b""
        if ready and not part:
            break
        data += part
    time.sleep(pause_s)         # spreads the instants; nothing depends on it
    os.kill(pid, signal.SIGKILL)
    while part := os.read(reader, 1 << 16):
        data += part
    os.close(reader)
    os.waitpid(pid, 0)
    acks, opened, complaint = [], False, ""
    for line in data.decode().splitlines():
        if line.startswith("!"):
            complaint = line
        elif line.startswith("open"):
            opened = True
        else:
            producer, number, offset = map(int, line.split())
            acks.append((producer, number, offset))
    return acks, opened, complaint


# ---- the judge

class Directory:
    """One store that lives through several kills, and what it must hold."""

    def __init__(self, root: str, config: str, in_flight: list[int] | None = None) -> None:
        self.root, self.config, self.in_flight = root, config, in_flight or IN_FLIGHT
        self.lossy = config.startswith("pool-async")
        self.places: list[dict[int, int]] = [{}, {}, {}, {}]       # of each producer: number -> offset, acknowledged
        self.counts = [0, 0, 0, 0]                                 # messages there after the last look
        self.lost_suffix = 0

    def look(self, acks: list[tuple[int, int, int]], readonly: bool) -> list[str]:
        """Opens the store and says what is wrong."""
        for producer, number, offset in acks:
            self.places[producer][number] = offset
        first = "log1" if self.config.endswith("-several") else "commitlog"
        if readonly and not os.path.isdir(os.path.join(self.root, first)):
            return [] if not acks else ["no commitlog"]
        with MessageStore.open(self.root, readonly=readonly, **options_of(self.root, self.config)) as store:
            wrong = self._compare(store, acks)
            if not readonly and not wrong:
                wrong = self._queues(store)
        return wrong

    def _compare(self, store: MessageStore, acks: list[tuple[int, int, int]]) -> list[str]:
        found: list[dict[int, int]] = [{}, {}, {}, {}]
        for m in store.scan():
            producer, number = parse(bytes(m.body))
            if m.queue_id != producer or m.queue_offset != number or number != len(found[producer]):
                return [f"message {producer}:{number} is in queue {m.queue_id} at {m.queue_offset}, "
                        f"{len(found[producer])} came before"]
            if m.keys != f"{producer}-{number}":
                return [f"message {producer}:{number} has keys {m.keys}"]
            found[producer][number] = m.offset
        wrong = []
        for producer, places in enumerate(self.places):
            here = found[producer]
            acked = max((n for p, n, _ in acks if p == producer), default=self.counts[producer] - 1)
            if len(here) > max(acked + 1, self.counts[producer]) + self.in_flight[producer]:
                wrong.append(f"producer {producer}: {len(here)} messages, only {acked + 1} were acknowledged")
            for number, offset in list(places.items()):
                if here.get(number) == offset:
                    continue
                if self.lossy and number not in here and offset >= store.max_log_offset:
                    self.lost_suffix += 1
                    del places[number]
                    continue
                wrong.append(f"{producer}:{number}, acknowledged at {offset}, is at {here.get(number)}; "
                             f"the log ends at {store.max_log_offset}")
        self.counts = [len(here) for here in found]
        return wrong

    def _queues(self, store: MessageStore) -> list[str]:
        wrong = []
        for producer, count in enumerate(self.counts):
            got = [(m.queue_offset, parse(bytes(m.body))) for m in store.scan(TOPIC, producer)] if count else []
            if got != [(n, (producer, n)) for n in range(count)]:
                wrong.append(f"queue {producer} leads to {len(got)} messages of {count}")
            for number in {0, count // 2, count - 1} if count else ():
                offsets = {m.offset for m in store.query_key(TOPIC, f"{producer}-{number}")}
                if len(offsets) != 1:
                    wrong.append(f"key {producer}-{number} leads to {offsets}")
        return wrong


def run(config: str, cycles: int, seed: int, place: str) -> dict[str, Any]:
    """The loop for one configuration: what it saw, and "wrong": a list, empty if all is well."""
    rnd = random.Random(f"{seed} {config}")
    seen: dict[str, Any] = {"config": config, "seed": seed, "kills": 0, "acknowledged": 0, "without_acks": 0,
                            "while_opening": 0, "lost_suffix": 0, "wrong": []}
    directory: Directory | None = None
    began = time.monotonic()
    for cycle in range(cycles):
        if directory is None or cycle % KILLS_PER_DIRECTORY == 0:
            if directory:
                shutil.rmtree(directory.root)
            directory = Directory(os.path.join(place, f"{config}-{cycle}"), config)
        acks, opened, complaint = run_victim(directory.root, config, directory.counts, rnd)
        seen["kills"] += 1
        seen["acknowledged"] += len(acks)
        seen["without_acks"] += not acks
        seen["while_opening"] += not opened
        wrong = [complaint] if complaint else []
        # A killed process that was looked at only, or not at all, leaves its store to the next one as it is.
        wrong += directory.look(acks, readonly=cycle % 2 == 0)
        if wrong:
            seen["wrong"] = [f"kill {cycle}: {w}" for w in wrong]
            seen["kept"] = directory.root
            break
        seen["lost_suffix"] += directory.lost_suffix
        directory.lost_suffix = 0
    seen["kills_per_s"] = round(seen["kills"] / (time.monotonic() - began), 1)
    if directory and not seen["wrong"]:
        shutil.rmtree(directory.root)
    return seen


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.kill_loop", description="kill -9 in a loop")
    parser.add_argument("--cycles", type=int, default=50, help="kills for each configuration")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--config", nargs="*", default=CONFIGS,
                        choices=[*CONFIGS, *(f"{config}-several" for config in CONFIGS)])
    parser.add_argument("--dir", help="where the stores are made; default: a temporary directory")
    given = parser.parse_args(arguments)
    logging.getLogger("rmq_store").setLevel(logging.CRITICAL)
    place = tempfile.mkdtemp(prefix="rmq_store-kill-", dir=given.dir)
    failed = False
    for config in given.config:
        seen = run(config, given.cycles, given.seed, place)
        print(json.dumps(seen), flush=True)
        failed = failed or bool(seen["wrong"]) or not seen["acknowledged"]
    if not failed:
        shutil.rmtree(place)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

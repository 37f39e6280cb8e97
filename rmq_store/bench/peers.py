"""What a user would take instead, under the same loops: a plain file, SQLite, LMDB, RocksDB. And the names of all peers.

Each at its matching durability: with flush_mode sync a put is on the device when it returns, with async it is not. They know
put_async, put_sync and put_many; a batch is one transaction, or one write. Keys are numbers in order, values the bodies.
"""
import itertools
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.machine.device import DeviceWatch
from rmq_store.bench import messages
from rmq_store.bench.case import Case, Skip
from rmq_store.bench.loops import ROUND, batches, loops
from rmq_store.bench.machine import Watch
from rmq_store.bench.ours import Figures, histograms
from rmq_store.errors import ConfigError

CLOCK = time.perf_counter_ns

# name -> what it is; fio has a module of its own, the last two need the checkout's tools/interop (java.py)
PEERS = {
    "append": "a plain file: write, and fdatasync where a put is to be durable",
    "sqlite": "SQLite, WAL, a commit each; synchronous=full or off",
    "lmdb": "LMDB (package lmdb), a commit each; without sync also writemap",
    "rocksdb": "RocksDB (package rocksdict), write-ahead log; sync or not",
    "fio": "fio, the limit: the same system calls on the same file state, without a store",
    "rocketmq": "the real RocketMQ store, in-process (JDK, mvn, a checkout of rmq_store)",
    "chronicle": "Chronicle Queue, in-process (JDK, mvn, a checkout of rmq_store)",
}
_OWN_MODULE = {"fio": "rmq_store.bench.fio", "rocketmq": "rmq_store.bench.java", "chronicle": "rmq_store.bench.java"}


def module_of(name: str) -> str:
    """The module that runs a peer. Raises ConfigError for an unknown one."""
    if name not in PEERS:
        raise ConfigError(f"peer {name!r}: expected one of {', '.join(PEERS)}")
    return _OWN_MODULE.get(name, __name__)


class Peer(Protocol):
    """What the loops need."""

    def put(self, body: bytes) -> object: ...

    def put_many(self, bodies: list[bytes], queue: int) -> object: ...

    def flush(self) -> object: ...

    def close(self) -> object: ...


def make_file(path: Path, state: str, size: int) -> int:
    """A file of `size` bytes in a state of FILE_STATES (`default`: empty), synced; its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if state == "sparse":
        os.ftruncate(fd, size)
    elif state == "fallocated":
        os.posix_fallocate(fd, 0, size)
    elif state == "prezeroed":
        block = bytes(1 << 20)
        for at in range(0, size, len(block)):
            os.pwrite(fd, block[:size - at], at)
    os.fsync(fd)
    return fd


class Append:
    """pwrite at the end of what was written; fdatasync behind it where durable."""

    def __init__(self, case: Case, base: Path) -> None:
        self._fd = make_file(base / "file", case.file_state, case.cap_mib << 20)
        self._at = 0
        self._durable = case.flush_mode == "sync"

    def put(self, body: bytes) -> None:
        self._at += os.pwrite(self._fd, body, self._at)
        if self._durable:
            os.fdatasync(self._fd)

    def put_many(self, bodies: list[bytes], queue: int) -> None:
        self.put(b"".join(bodies))

    def flush(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class Sqlite:
    """One table, integer key, blob."""

    def __init__(self, case: Case, base: Path) -> None:
        self._db = sqlite3.connect(base / "db", isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute(f"pragma synchronous={'full' if case.flush_mode == 'sync' else 'off'}")
        self._db.execute("create table message (id integer primary key, body blob)")
        execute, text = self._db.execute, "insert into message (body) values (?)"
        self.put: Callable[[bytes], object] = lambda body: execute(text, (body,))

    def put_many(self, bodies: list[bytes], queue: int) -> None:
        self._db.execute("begin")
        self._db.executemany("insert into message (body) values (?)", [(body,) for body in bodies])
        self._db.execute("commit")

    def flush(self) -> None:
        """With synchronous=off a checkpoint syncs nothing; and it says that it was not whole by a row, not by an error."""
        self._db.execute("pragma synchronous=full")
        busy, logged, moved = self._db.execute("pragma wal_checkpoint(full)").fetchone()
        if busy or logged != moved:
            raise RuntimeError(f"SQLite's checkpoint moved {moved} of {logged} pages, busy: {busy}")

    def close(self) -> None:
        self._db.close()


class Lmdb:
    """Eight-byte keys in order, appended."""

    def __init__(self, case: Case, base: Path) -> None:
        import lmdb
        durable = case.flush_mode == "sync"
        self._env = lmdb.open(str(base / "lmdb"), map_size=4 * case.cap_mib << 20, sync=durable, metasync=durable,
                              writemap=not durable)
        self._numbers = itertools.count()

    def put(self, body: bytes) -> None:
        with self._env.begin(write=True) as txn:
            txn.put(next(self._numbers).to_bytes(8, "big"), body, append=True)

    def put_many(self, bodies: list[bytes], queue: int) -> None:
        with self._env.begin(write=True) as txn:
            for body in bodies:
                txn.put(next(self._numbers).to_bytes(8, "big"), body, append=True)

    def flush(self) -> None:
        self._env.sync(True)

    def close(self) -> None:
        self._env.close()


class RocksDb:
    """Eight-byte keys in order."""

    def __init__(self, case: Case, base: Path) -> None:
        import rocksdict
        self._kit = rocksdict
        self._db = rocksdict.Rdict(str(base / "rocks"), rocksdict.Options(raw_mode=True))
        self._write = rocksdict.WriteOptions()
        self._write.sync = case.flush_mode == "sync"
        self._db.set_write_options(self._write)
        numbers, db = itertools.count(), self._db

        def put(body: bytes) -> None:
            db[next(numbers).to_bytes(8, "big")] = body

        self.put = put
        self._numbers = numbers

    def put_many(self, bodies: list[bytes], queue: int) -> None:
        batch = self._kit.WriteBatch(raw_mode=True)
        for body in bodies:
            batch.put(next(self._numbers).to_bytes(8, "big"), body)
        self._db.write(batch, self._write)

    def flush(self) -> None:
        self._db.flush_wal(True)

    def close(self) -> None:
        self._db.close()


_MADE: dict[str, Callable[[Case, Path], Any]] = {"append": Append, "sqlite": Sqlite, "lmdb": Lmdb, "rocksdb": RocksDb}
_KNOWN = {"put_async", "put_sustained", "put_sync", "put_many"}


def run(case: Case, base: Path) -> Figures:
    """One workload on one peer of this module."""
    if case.workload not in _KNOWN:
        raise Skip(f"{case.subject} has no workload {case.workload}: it knows {', '.join(sorted(_KNOWN))}")
    peer: Peer = _MADE[case.subject](case, base)
    several = messages.rounds("bare", case.body)
    made, times = loops("bare"), Histogram()
    most = max(ROUND, (case.cap_mib << 20) // max(case.body, 64))
    for (body,) in several[0][:8]:
        peer.put(body)
    messages.pretouch(case.pretouch_mib)
    with DeviceWatch(base) as device, Watch() as watch:
        start = CLOCK()
        deadline = start + int(case.seconds * 1e9)
        if case.batch > 1:
            bodies = [body for r in several for (body,) in r]
            many = [bodies[i:i + case.batch] for i in range(0, len(bodies), case.batch)]
            count = batches(peer.put_many, many, most, deadline, CLOCK, times)
        else:
            loop = made.slow if case.flush_mode == "sync" else made.timed
            count = loop(peer.put, "", several, most, deadline, CLOCK, times.add)
        seconds = (CLOCK() - start) / 1e9
        begin = CLOCK()
        peer.flush()
        drain_ms = (CLOCK() - begin) / 1e6
    peer.close()
    calls = times.count
    return {"msgs": count, "msgs_per_s": round(count / seconds), "mib_per_s": round(count * case.body / seconds / (1 << 20), 3),
            "drain_ms": round(drain_ms, 2), "sustained_per_s": round(count / (seconds + drain_ms / 1e3)),
            "cpu_ns_per_msg": round(watch.own * 1e9 / count, 1), **times.figures(), **watch.figures(),
            **device.figures(calls if case.flush_mode == "sync" else 0), "histograms": histograms(call=times)}

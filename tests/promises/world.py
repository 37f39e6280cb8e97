"""One store whose life is a sequence of steps, the faults that a step can meet, and the ledger of what it promised.

A kill is a disk that ignores every change from the n-th on (ProbeIo.freeze). A power cut is the same, and then any part
of what was not synced may be lost (tests/crash/disk.py). The wall clock stands, and is set."""
import collections
import copy
import errno
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmq_store import MessageStore, errors, promote, restore, verify
from rmq_store.base.io._io import Call, ProbeIo
from rmq_store.status import PutStatus
from tests.crash.disk import Disk, Image
from tests.promises.ledger import Found, Ledger, Promise, Wrong, number_of

NOW = 1_795_000_000_000
TIMER = "rmq_sys_wheel_timer"
FULL = "open|fallocate|ftruncate|mkdir|rename"
SIZES: dict[str, Any] = {
    "segment_size_bytes": 16384, "consumequeue_file_size_bytes": 20 * 16, "index_slots": 20, "index_entries_max": 40,
    "timer_log_file_bytes": 1040, "timer_precision_ms": 100, "timer_roll_window_slot": 30, "timer_max_delay_sec": 366 * 86_400,
    "timer_flush_interval_ms": 1, "delay_levels": (100, 5000), "pool_window_size_bytes": 4096, "pool_window_count": 2,
    "compaction_file_size_bytes": 16384, "compaction_cq_file_size_bytes": 920,
    "enable_lmq": True, "enable_multi_dispatch": True, "disk_full_pct": 100, "manifest_enabled": False,
    "transaction_check_interval_ms": 86_400_000, "transaction_op_interval_ms": 3_600_000, "offsets_flush_interval_ms": 20,
    "delay_offset_flush_interval_ms": 20, "flush_deadline_ms": 2000, "close_timeout_ms": 2000}
LIMITS = (8192, 8192, 1500, 300)
PATIENCE_S = 30


class World:
    """root: where the store is now. Steps are in steps.py."""

    def __init__(self, place: Path) -> None:
        self.place, self.root, self.roots = place, place / "s0", 0
        self.ms = self.far = NOW
        self.ledger = Ledger()
        self.number = 0
        self.io: ProbeIo = ProbeIo()
        self.store: Any = None
        self.consumer: Any = None
        self.limit = LIMITS[0]
        self.options: dict[str, Any] = {}
        self.armed = False                      # a kill is set, now or for later
        self.cut = False                        # it is a power cut
        self.wants = 0                          # more than 0: a fault is on, and calls may refuse
        self.backups: list[tuple[str, Ledger]] = []
        self.log: list[str] = []
        self.base: Image = {}

    # ---- the store

    def open(self, rnd: random.Random, freeze: int = 0) -> None:
        self.options = {**SIZES, "write_path": rnd.choice(("mmap", "mmap", "pool")),
                        "flush_mode": rnd.choice(("sync", "async")),
                        "record_crc": rnd.random() < 0.2, "message_size_max_bytes": rnd.choice(LIMITS)}
        self.limit = self.options["message_size_max_bytes"]
        self.base = image_of(self.root)
        self.io = ProbeIo()
        self.io.set_clock(self.ms, 0)
        self.armed = freeze > 0
        if freeze:
            self.io.freeze("mutate", freeze)
        try:
            self.store = MessageStore.open(self.root, _io=self.io, **self.options)
            self.store.on_check("shop", self.answer)
            self.store.topic_table.set_queue_type("I", "BatchCQ")
            self.store.topic_table.set_cleanup_policy("C", "COMPACTION")
            self.consumer = self.store.consumer("G", "W", max_retries=1)
        except (errors.RmqStoreError, OSError):
            if not self.io.frozen:
                raise
        if not self.io.frozen:
            self.ledger.made_durable()          # a later cut begins with what is in the files now
            self.settle()

    def close(self) -> None:
        """In order, or as it can."""
        store, self.store, self.consumer = self.store, None, None
        if store is not None:
            try:
                store.close()
            except (errors.RmqStoreError, OSError):
                if not (self.io.frozen or self.wants):
                    raise

    def crash(self, rnd: random.Random) -> None:
        """The kill, or the cut, has happened: the next process opens what is there. It may be killed as well."""
        cut, self.cut, self.wants, self.armed = self.cut, False, 0, False
        self.log.append("the power is cut" if cut else "killed")
        image = self.after_cut(rnd) if cut else None
        self.close()
        if image is not None:
            write_image(self.root, image)
        self.ledger.crashed(lossy=cut or self.options["write_path"] == "pool")
        again = rnd.randrange(1, 60) if rnd.random() < 0.4 else 0
        self.open(rnd, again)
        if self.io.frozen:
            self.log.append(f"killed at {again} of the open")
            self.close()
            self.ledger.crashed(lossy=False)
            self.open(rnd)

    def calm(self, rnd: random.Random) -> None:
        """No kill is set any more: one that is comes now."""
        while self.armed:
            self.io.freeze()
            self.crash(rnd)

    def shut(self, rnd: random.Random) -> None:
        """Closed in order, in the end."""
        self.close()
        while self.io.frozen:
            self.crash(rnd)
            self.close()

    def after_cut(self, rnd: random.Random) -> Image:
        """One of the directories that a power cut may leave now."""
        self.io.freeze()
        disk = Disk(self.root, self.base)
        for call in self.io.trace():
            if belongs(call, str(self.root)):
                disk.feed(call)
            else:
                disk.number += 1
        slots, kind = disk.slots(), rnd.randrange(4)
        return disk._state(slots, [0 if kind == 0 or (kind == 2 and rnd.random() < 0.8) else slot.options - 1 if kind == 1
                                   else rnd.randrange(slot.options) for slot in slots])

    # ---- time

    def set(self, ms: int) -> None:
        self.ms, self.far = ms, max(ms, self.far)
        self.io.set_clock(ms, 0)
        self.poke()

    def poke(self) -> None:
        if self.store is not None and self.store._timer is not None:
            self.store._timer.wheel.poke()
        if self.store is not None and self.store._delay is not None:
            self.store._delay.timer.poke()

    def settle(self, end: bool = False) -> None:
        """Until all that is due now is where it belongs; then that is judged. A kill that is set may come meanwhile: whoever
        waits in that process is then told what it likes, as in attempt()."""
        try:
            self._settle(end)
        except (errors.RmqStoreError, OSError):
            if not self.io.frozen:
                raise

    def _settle(self, end: bool) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.io.frozen and not self._settled():
            if time.monotonic() > deadline:
                raise Wrong(f"it does not settle: {self.store.delay_levels()}, {self.store.stats()}")
            self.poke()
            time.sleep(0.0005)
        if not self.io.frozen:
            self.ledger.judge(self.store, self.ms - SIZES["timer_precision_ms"], self.far, late=True, end=end)

    def _settled(self) -> bool:
        store = self.store
        if not store.wait_dispatched(1):
            return False
        wrote = store.stats()["wrote"]
        if store._timer is not None:
            read_ms, _, offset = store._timer.wheel.position()
            if offset < store.max_offset(TIMER, 0) or read_ms < self.ms // 100 * 100:
                return False
        for level in store.delay_levels():
            if level.waiting and (level.next_due is None or level.next_due <= self.ms):
                return False
        return bool(store.wait_dispatched(1) and store.stats()["wrote"] == wrote)

    # ---- promises

    def new(self, kind: str, topic: str, rnd: random.Random, size: int | None = None, **more: Any) -> Promise:
        number = self.number = self.number + 1
        size = rnd.choice((0, 20, 200, 200, 1400, 3000)) if size is None else size
        body = b"%d:" % number + bytes([97 + number % 26]) * size
        p = self.ledger.all[number] = Promise(number, kind, topic, more.pop("queue_id", 0), body, **more)
        return p

    def acknowledged(self, p: Promise, result: Any, offset: int | None = None, place: int | None = None) -> None:
        """If the call has really returned so: after a kill, or in a want, a store may say what it likes, or nothing."""
        if result is None or self.io.frozen or result.status != PutStatus.PUT_OK:
            return
        p.need, p.durable = True, self.options["flush_mode"] == "sync"
        p.place = result.offset if place is None else place
        p.offset = result.queue_offset if offset is None else offset

    def attempt(self, call: Callable[..., Any], *arguments: Any, too_large: bool = False, **keywords: Any) -> Any:
        """What it returns; None where it raised and may: the kill, a want, or a body beyond the limit."""
        try:
            result = call(*arguments, **keywords)
        except (errors.RmqStoreError, OSError) as error:
            if self.io.frozen or self.wants or (too_large and isinstance(error, errors.MessageIllegal)):
                return None
            raise
        if too_large and not self.io.frozen:
            raise Wrong(f"{call.__name__} took a body that is longer than the limit of {self.limit}")
        return result

    def answer(self, transaction: Any) -> str:
        p = self.ledger.all[number_of(transaction.message.body)]
        if p.wish != "unknown":
            p.state, p.decided = "unsure", False
        return p.wish

    # ---- larger steps

    def change_root(self) -> Path:
        self.roots += 1
        old, self.root = self.root, self.place / f"s{self.roots}"
        return old

    def restore(self, rnd: random.Random) -> None:
        """Some backup takes the place of the store."""
        self.shut(rnd)
        name, ledger = rnd.choice(self.backups)
        self.log.append(f"restored {Path(name).name}")
        shutil.rmtree(self.change_root())
        restore(Path(name).parent, self.root, Path(name).name)
        self.ledger = copy.deepcopy(ledger)
        for p in self.ledger.all.values():
            p.again = True                      # offsets are as they were last written
        self.open(rnd)

    def promote(self, rnd: random.Random) -> None:
        """A slave follows until it has all; its master is gone, and it becomes one. Of the tables it has a copy of before."""
        self.shut(rnd)
        probe = ProbeIo(keep_bytes=False)
        probe.set_clock(self.ms, 0)
        master = MessageStore.open(self.root, _io=probe, ha_listen="127.0.0.1:0", **self.options)
        old = self.change_root()
        (self.root / "config").mkdir(parents=True)
        more = ("timercheck",) if rnd.random() < 0.5 else ()
        for name in ("topics.json", "consumerOffset.json", "delayOffset.json", *more):
            for table in (old / "config").glob(f"{name}*"):
                shutil.copy(table, self.root / "config")
        other = ProbeIo(keep_bytes=False)
        other.set_clock(self.ms, 0)
        follows = {"role": "slave", "ha_master": master.replication().address}
        with MessageStore.open(self.root, _io=other, **follows, **self.options) as slave:
            deadline = time.monotonic() + PATIENCE_S
            while slave.max_log_offset != master.max_log_offset:
                if time.monotonic() > deadline:
                    raise Wrong(f"the slave stands at {slave.max_log_offset} of {master.max_log_offset}")
                time.sleep(0.001)
            slave.wait_dispatched(PATIENCE_S)
            master.close()
        last = ProbeIo(keep_bytes=False)
        last.set_clock(self.ms, 0)
        done = promote(self.root, force=True, _io=last, **self.options)
        shutil.rmtree(old)
        self.ledger.followed(done.min_log_offset)
        self.backups.clear()
        self.open(rnd)

    def moved(self, rnd: random.Random, work: Callable[[], None]) -> None:
        """The root gets another name while it is open, and another store may have its name; the operator puts it right."""
        self.calm(rnd)
        aside, other = self.root.with_suffix(".aside"), rnd.random() < 0.5
        self.root.rename(aside)
        self.wants = 1
        if other:
            with MessageStore.open(self.root, **SIZES) as there:
                there.put("A", b"0:other")
        work()
        self.close()
        self.wants = 0
        if other:
            with MessageStore.open(self.root, readonly=True, **SIZES) as there:
                if [bytes(m.body) for m in there.scan()] != [b"0:other"]:
                    raise Wrong("a store that has the name of a directory which is open elsewhere was changed")
            shutil.rmtree(self.root)
        elif self.root.exists():
            raise Wrong(f"{self.root} was made again while the store is elsewhere")
        aside.rename(self.root)
        self.ledger.crashed(lossy=self.options["write_path"] == "pool")
        self.open(rnd)

    # ---- the end

    def end(self, rnd: random.Random, consume: Callable[[], None]) -> None:
        """The clock is right, the disk has room, and everything that waits is delivered and handled."""
        self.calm(rnd)
        self.set(self.far + 10_000)
        deadline = time.monotonic() + 2 * PATIENCE_S
        while True:
            self.settle()
            self.store._checker.round(self.store, self.ms)
            consume()
            self.store.wait_dispatched(PATIENCE_S)      # what was sent back
            waiting = [level for level in self.store.delay_levels() if level.waiting]
            pending = self.store._timer is not None and self.store._timer.wheel.state()[0]
            behind = sum(row.behind for row in self.store.lag("G"))
            if not (waiting or pending or behind):
                break
            if time.monotonic() > deadline:
                raise Wrong(f"waits for ever: {waiting}, {list(self.store.timers())[:3]}, {self.store.lag('G')}")
            self.set(self.ms + 10_000)
        self.settle(end=True)
        self.close()
        options = {name: value for name, value in self.options.items() if name != "delay_levels"}
        found = [f for f in verify(self.root, **options) if f.severity != "note"]
        if found:
            raise Wrong(f"verify: {found[:3]}")

    def there(self, topic: str) -> "collections.Counter[int]":
        return collections.Counter(c.number for c in Found(self.store).copies if c.topic == topic)


def belongs(call: Call, root: str) -> bool:
    """Whether the model of the disk is to see it. The wheel is large, and each open makes it anew."""
    if call.kind == "mark":
        return False
    path = call.path or ""
    return path.startswith(root) and not path.endswith("timerwheel")


def image_of(root: Path) -> Image:
    out: Image = {}
    for path in sorted(root.rglob("*")):
        if path.name != "timerwheel":
            out[str(path.relative_to(root))] = None if path.is_dir() else path.read_bytes()
    return out


def write_image(root: Path, image: Image) -> None:
    shutil.rmtree(root)
    root.mkdir()
    for path, data in sorted(image.items()):
        if data is None:
            (root / path).mkdir(exist_ok=True)
        else:
            (root / path).write_bytes(data)


def no_room() -> tuple[str, int, int]:
    return FULL, 1, errno.ENOSPC

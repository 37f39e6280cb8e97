"""A master with a consumer and a slave at work, on an I/O table that can be told to want for something; and what must hold."""
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError

PATIENCE_S = 20         # far beyond every bound that the store promises: only a hang takes so long
SIZES: dict[str, Any] = {
    "segment_size_bytes": 65536, "consumequeue_file_size_bytes": 400, "index_slots": 20, "index_entries_max": 40,
    "message_size_max_bytes": 8192, "timer_log_file_bytes": 2080, "timer_precision_ms": 100, "flush_interval_ms": 20,
    "delay_levels": (100, 3_600_000), "offsets_flush_interval_ms": 20, "clean_interval_ms": 50, "disk_full_pct": 100,
    "manifest_enabled": False, "close_timeout_ms": 1000, "flush_deadline_ms": 5000, "stats_file_interval_ms": 100}
# name of a want -> (kinds of calls of the I/O table that meet it, what they answer)
MAKES = "open|fallocate|ftruncate|mkdir|rename"
WANTS: dict[str, tuple[str, int]] = {
    "EMFILE": ("open", errno.EMFILE), "ENFILE": ("open", errno.ENFILE), "ENOMEM": ("open|mmap|fallocate", errno.ENOMEM),
    "ENOSPC": (MAKES, errno.ENOSPC), "EDQUOT": (MAKES, errno.EDQUOT), "inodes": ("open|mkdir", errno.ENOSPC)}


class Hangs(AssertionError):
    """A call that does not come back."""


def bounded(call: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> BaseException | None:
    """Runs it in a thread of its own; returns what it raised."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body, daemon=True, name=what)
    thread.start()
    thread.join(patience_s)
    if thread.is_alive():
        raise Hangs(f"{what} has not come back after {patience_s} s")
    return raised[0] if raised else None


class World:
    """One store and its company. `sent` has the bodies of topic T in the order of their acknowledgement."""

    def __init__(self, place: Path, **more: Any) -> None:
        self.place, self.probe = place, ProbeIo(keep_bytes=False)
        self.sent: list[bytes] = []
        self.unsure: set[bytes] = set()
        self.options = {**SIZES, **more}
        self.store = MessageStore.open(place / "m", _io=self.probe, ha_listen="127.0.0.1:0", **self.options)
        self.store.topic_table.set_queue_type("I", "BatchCQ")
        self.slave_probe = ProbeIo(keep_bytes=False)
        self.slave = MessageStore.open(place / "s", _io=self.slave_probe, role="slave",
                                       ha_master=self.store.replication().address, **self.options)
        self.consumer = self.store.consumer("G", "T")
        self.seen: set[bytes] = set()
        self.made = 0

    def body(self) -> bytes:
        self.made += 1
        return b"%06d" % self.made

    def put(self, **more: Any) -> Any:
        body = self.body()
        self.unsure.add(body)
        result = self.store.put("T", body, keys=f"k{self.made}", **more)
        self.sent.append(body)
        return result

    def poll(self) -> None:
        """Takes what is there, and acknowledges it."""
        while (batch := self.consumer.poll(64, timeout=0)) is not None:
            self.seen |= {bytes(m.body) for m in batch}
            batch.ack()

    def under(self, want: str, call: "Callable[[World], Any]", name: str, nth: int = 1) -> str | None:
        """One call under a want that lasts, from its nth call of the table on. Returns what is wrong with its outcome."""
        kinds, code = WANTS[want]
        self.probe.fail(kinds, nth, code, sticky=True)
        try:
            error = bounded(lambda: call(self), f"{name} under {want}")
            work = bounded(self.put, f"a put behind {name} under {want}")
        finally:
            self.probe.clear()
        for raised in (error, work):
            if raised is not None and not isinstance(raised, RmqStoreError) and getattr(raised, "errno", None) != code:
                return f"{name} under {want} ({nth}) raised {type(raised).__name__}: {raised}"
        return None

    def heals(self, name: str) -> str | None:
        """The want is over: what still does not work."""
        try:
            if raised := bounded(self.put, f"a put after {name}"):
                return f"after {name} a put raises {type(raised).__name__}: {raised}"
            if not self.store.wait_dispatched(PATIENCE_S):
                return f"after {name} dispatch stands still"
            if raised := bounded(self.poll, f"poll after {name}"):
                return f"after {name} poll raises {type(raised).__name__}: {raised}"
        except RmqStoreError as error:
            return f"after {name}: {type(error).__name__}: {error}"
        lost = set(self.sent) - self.seen
        return f"after {name} the consumer misses {sorted(lost)[:5]}" if lost else None

    def end(self) -> str | None:
        """Closes, opens again, and looks at everything: what is wrong."""
        pause = threading.Event()
        for _ in range(PATIENCE_S * 100):
            if self.slave.max_log_offset == self.store.max_log_offset:
                break
            pause.wait(0.01)
        else:
            return f"the slave stands at {self.slave.max_log_offset} of {self.store.max_log_offset}"
        self.slave.wait_dispatched(PATIENCE_S)
        wrong = self.look(self.slave, "the slave")
        self.close()
        with MessageStore.open(self.place / "m", **self.options) as store:
            return wrong or self.look(store, "the store, opened again")

    def look(self, store: MessageStore, who: str) -> str | None:
        found = [bytes(m.body) for q in store.queues("T") for m in store.scan("T", q)]
        missing = set(self.sent) - set(found)
        if missing:
            return f"{who} lacks {sorted(missing)[:5]}"
        twice = len(found) - len(set(found))
        if twice or set(found) - self.unsure:
            return f"{who} has {twice} twice, and {sorted(set(found) - self.unsure)[:5]} that were never put"
        behind = sum(row.behind for row in store.lag("G", "T"))
        return f"{who}: the group is {behind} behind" if behind and who != "the slave" else None

    def close(self) -> None:
        for what, one in (("consumer", self.consumer), ("slave", self.slave), ("master", self.store)):
            error = bounded(one.close, f"close of the {what}")
            assert error is None, f"close of the {what}: {error!r}"

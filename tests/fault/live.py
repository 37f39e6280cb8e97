"""A service that goes on after errors, on a store whose system calls fail; and what its directory must hold afterwards.

Every put ends in one of these: "refused" (it raised, nothing may be stored), "unknown" (it raised because the device failed: it
may be there or not), "acked" (it returned), "durable" (what returned says that it is on the device).
"""
import threading
from collections.abc import Callable
from typing import Any

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import DurabilityError, PutError, RmqStoreError, StoreStateError
from tests.crash import scenario
from tests.crash.scenario import Sent

LIMITS = {"close_timeout_ms": 50, "flush_deadline_ms": 5000}
PATIENCE_S = 30         # far beyond every bound that the store promises: only a hang takes so long


class Live:
    """One life of a store on a probe: what was put and became of it, and every error on the way."""

    def __init__(self, root: str, config: tuple[str, str, str], probe: ProbeIo, **options: Any) -> None:
        self.root, self.config, self.probe = root, config, probe
        self.sync = config[1] == "sync"
        self.options = {**scenario.SMALL, **LIMITS, **scenario.config_options(config), **options}
        self.sent: list[Sent] = []
        self.state: list[str] = []
        self.errors: list[tuple[str, BaseException]] = []
        self.store: MessageStore | None = None

    def run(self, steps: "Callable[[Live], None] | None" = None) -> None:
        """Opens, takes the steps, closes; raises only what the steps assert. A hang is an AssertionError."""
        failed: list[BaseException] = []

        def body() -> None:
            try:
                self._run(steps or usual)
            except BaseException as e:
                failed.append(e)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"hangs after {self.errors}"
        if failed:
            raise failed[0]

    def _run(self, steps: "Callable[[Live], None]") -> None:
        self.attempt("open", self._open)
        if self.store is None:
            return
        try:
            steps(self)
        finally:
            if self.attempt("close", self.store.close):
                self._settle("durable")

    def _open(self) -> None:
        self.store = MessageStore.open(self.root, _io=self.probe, **self.options)

    def attempt(self, name: str, call: Callable[[], Any]) -> bool:
        try:
            call()
        except Exception as e:
            self.errors.append((name, e))
            return False
        return True

    def put(self, size: int = 700) -> None:
        self.put_all([scenario.message(len(self.sent), size)])

    def put_many(self, count: int, size: int) -> None:
        first = len(self.sent)
        self.put_all([Sent("T", 0, scenario.message(first + i, size).body, f"key{first + i}") for i in range(count)])

    def put_all(self, some: list[Sent]) -> None:
        """One message by put, several by put_many."""
        assert self.store is not None
        first = len(self.sent)
        self.sent += some
        self.state += ["unknown"] * len(some)
        self.probe.mark(("sent", list(self.sent)))
        try:
            if len(some) == 1:
                status = some[0].put(self.store).status
            else:
                status = self.store.put_many("T", [{"body": s.body, "keys": s.key, "tags": "tag"} for s in some]).status
        except Exception as e:
            self.errors.append(("put", e))
            outcome = "refused" if isinstance(e, PutError) else "unknown"
        else:
            outcome = "durable" if self.sync and status == 0 else "acked"
        for i in range(first, len(self.sent)):
            self.state[i] = outcome
        self._mark()

    def flush(self) -> None:
        assert self.store is not None
        if self.attempt("flush", self.store.flush):
            self._settle("durable")

    def _settle(self, state: str) -> None:
        self.state = [state if s == "acked" else s for s in self.state]
        self._mark()

    def _mark(self) -> None:
        self.probe.mark(("state", list(self.state)))

    # ---- what must hold

    def wrong_errors(self, injected: int | None) -> list[str]:
        """Errors that are not what the store promises to raise."""
        out = []
        for name, e in self.errors:
            if isinstance(e, DurabilityError) or (name == "open" and isinstance(e, OSError)):
                good = injected is None or e.errno == injected
            else:
                good = isinstance(e, (PutError, StoreStateError)) or (name == "open" and isinstance(e, RmqStoreError))
            if not good:
                out.append(f"{name} raised {type(e).__name__}: {e}")
        return out

    def judge(self, root: str) -> str | None:
        """What is wrong with the directory after this life, without a power cut."""
        lost_pool = self.config[:2] == ("pool", "async") and bool(self.errors)
        return judge(root, self.sent, self.state, {"durable"} if lost_pool else {"durable", "acked"})


def usual(live: Live) -> None:
    """Small messages, a flush, a batch, a roll to the next file, and on."""
    live.put(3000)
    live.put(3000)
    live.flush()
    live.put_many(2, 1500)
    live.put(7000)
    live.put(3000)
    store = live.store
    assert store is not None
    live.attempt("wait_dispatched", lambda: store.wait_dispatched(0.05))
    live.flush()
    live.put()


def judge(root: str, sent: list[Sent], state: list[str], kept: set[str]) -> str | None:
    """Opens the directory: messages in a state of `kept` are there; refused ones are not; queues and index agree."""
    options = {**scenario.SMALL, "write_path": "mmap"}
    try:
        with MessageStore.open(root, **options) as store:
            return look(store, sent, state, kept)
    except (RmqStoreError, OSError, ValueError, KeyError) as e:
        return f"reopening: {type(e).__name__}: {e}"


def look(store: MessageStore, sent: list[Sent], state: list[str], kept: set[str]) -> str | None:
    number = {one.body: i for i, one in enumerate(sent)}
    found = [number.get(bytes(m.body), -1) for m in store.scan()]
    if -1 in found:
        return f"a message that was never put: {found}"
    if found != sorted(set(found)):
        return f"not in the order of the puts: {found}"
    for i, s in enumerate(state):
        if s in kept and i not in found:
            return f"message {i} was {s} and is lost; there are {found}, of {state}"
        if s == "refused" and i in found:
            return f"message {i} was refused and is there"
    return scenario.inspect(store, [sent[i] for i in found], [], len(found))

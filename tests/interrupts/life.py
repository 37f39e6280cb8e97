"""A small life of a store that meets a signal, a fork, or a close() in another thread, and says what it was promised.

Everything in it is called by the main thread. What comes after the store was closed must be StoreStateError, and nothing else.
"""
import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from rmq_store import AsyncMessageStore, MessageStore
from rmq_store.errors import StoreStateError
from tests.crash import scenario

SMALL: dict[str, Any] = {
    "segment_size_bytes": 16384, "index_slots": 20, "index_entries_max": 40, "consumequeue_file_size_bytes": 20 * 64,
    "pool_window_size_bytes": 4096, "message_size_max_bytes": 8192, "close_timeout_ms": 20_000}
QUICK = [("mmap", "async", "msync"), ("pool", "async", "fdatasync")]
CONFIGS = [c for c in scenario.CONFIGS if c not in QUICK]
GROUP = "G"


class Life:
    """One run. After it: acked, log offset and body of what was promised; offset, what the group's offset on the device is at
    least."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.acked: list[tuple[int, bytes]] = []
        self.offset = -1
        self.errors: list[str] = []
        self.count = 0
        self.things: dict[str, Any] = {}        # what a child of fork may get hold of

    def body(self, size: int = 600) -> bytes:
        self.count += 1
        return b"%06d" % self.count + b"." * size

    def attempt(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except StoreStateError as error:
            if not self.store.closed and "consumer" not in str(error):
                self.errors.append(f"{name}: {type(error).__name__}: {error} of a store that is open")
        except BaseException as error:
            self.unexpected(name, error)
        return None

    def unexpected(self, name: str, error: BaseException) -> None:
        self.errors.append(f"{name}: {type(error).__name__}: {error}")

    def put(self, name: str, call: Callable[[bytes], Any], size: int = 600) -> None:
        body = self.body(size)
        result = self.attempt(name, lambda: call(body))
        if result is not None:
            self.acked.append((result.offset, body))

    def run(self) -> None:
        store = self.store
        with contextlib.suppress(StoreStateError):
            self.things |= {"offsets": store.offsets, "topics": store.topic_table, "groups": store.group_table}
        self.attempt("listener", lambda: store.add_arriving_listener(lambda *_: None))
        self.put("put", lambda b: store.put("T", b, keys="k"))
        self.put("put sync", lambda b: store.put("T", b, wait=True))
        self.put("put_async", lambda b: self._future(store.put_async("T", b, wait=True)))
        for _ in range(4):
            self.put("put large", lambda b: store.put("U", b), 5000)
        self._many()
        seen = self.attempt("wait", lambda: store.wait_dispatched(20))
        assert seen or store.closed
        self._read()
        self._consume()
        self.attempt("tables", lambda: (store.topic_table.set("T", perm=6), store.topic_table.flush()))
        self.attempt("flush", store.flush)
        self.attempt("reports", lambda: (store.stats(), store.lag(), store.runtime_info(), store.delay_levels(),
                                         store.check_self()))
        self.attempt("reconfigure", lambda: store.reconfigure(flush_deadline_ms=5001))
        self.attempt("delete", lambda: store.delete_topics("V"))
        self.put("delayed", lambda b: store.put("T", b, delay_level=1))
        self.attempt("scrub", lambda: store.scrub())
        self._clean()

    def _future(self, future: Any) -> Any:
        self.things["future"] = future
        called: list[Any] = []
        future.add_done_callback(called.append)
        return future.result(20)

    def _many(self) -> None:
        bodies = [self.body(100) for _ in range(5)]
        result = self.attempt("put_many", lambda: self.store.put_many("V", bodies))
        if result is not None:
            self.acked += zip(result.offsets, bodies, strict=True)

    def _read(self) -> None:
        def read() -> None:
            found = self.store.get("T", 0, 0)
            assert found.messages, f"{found!r}, dispatched {self.store._position('dispatched')}"
            self.things |= {"result": found, "message": found[0], "view": found[0].body}
            list(self.store.scan("U"))
            self.store.query_key("T", "k")
            self.things["walk"] = self.store.log_records()
            next(self.things["walk"])
        self.attempt("read", read)

    def _consume(self) -> None:
        consumer = self.attempt("consumer", lambda: self.store.consumer(GROUP, "T"))
        if consumer is None:
            return
        self.things["consumer"] = consumer

        def consume() -> None:
            consumer.poll(1).ack()
            consumer.poll(1).nack()
            batch = self.things["batch"] = consumer.poll(2)
            batch.retry(batch[0])
            batch.ack()
            self.store.offsets.flush()
            self.offset = self.store.offsets.query(GROUP, "T", 0)
        self.attempt("consume", consume)
        self.attempt("consumer.close", consumer.close)

    def _clean(self) -> None:
        for name in ("result", "message", "view"):      # else the files wait for them
            if name in self.things:
                self.things["old " + name] = self.things.pop(name)

    async def run_async(self) -> None:
        """The same, awaited."""
        self.things["aio"] = store = AsyncMessageStore(self.store)

        async def attempt(name: str, call: Any) -> Any:
            try:
                return await call
            except StoreStateError as error:
                if not self.store.closed and "consumer" not in str(error):
                    self.errors.append(f"{name}: {type(error).__name__}: {error} of a store that is open")
            except BaseException as error:
                self.unexpected(name, error)
            return None

        async def put(**more: Any) -> None:
            body = self.body()
            result = await attempt("put", store.put("T", body, **more))
            if result is not None:
                self.acked.append((result.offset, body))

        await put()
        await asyncio.gather(*(put(wait=True) for _ in range(6)))
        await attempt("flush", store.flush())
        await attempt("wait", store.wait_dispatched(20))
        await attempt("get", store.get("T", 0, 0, wait=0.01))
        subscription = self.attempt("subscribe", lambda: store.subscribe("T", 0, offset=0))
        if subscription is not None:
            self.things["subscription"] = subscription
            for _ in range(3):
                await attempt("next", asyncio.wait_for(subscription.__anext__(), 20))
            subscription.close()
        consumer = await attempt("consumer", store.consumer(GROUP, "T"))
        if consumer is not None:
            self.things["async consumer"] = consumer
            batch = await attempt("poll", consumer.poll(2))
            if batch is not None:
                self.attempt("ack", batch.ack)
            await attempt("consumer.close", consumer.close())
        await attempt("lag", store.lag())
        await attempt("stats", store.stats())
        await attempt("clean", store.clean(0))


def judge(root: str, life: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """What is wrong with what a run left: [] nothing."""
    wrong = list(life["errors"])
    plain = {**options, "flush_mode": "async", "write_path": "mmap", "flush_backend": "auto"}
    with MessageStore.open(root, **plain) as store:
        found = {bytes(message.body) for message in store.scan()}
        if store.stats()["recovered"]:
            wrong.append("the store was not closed in order")
        lost = [body for offset, body in life["acked"] if body not in found and offset >= store.min_log_offset]
        if lost:
            wrong.append(f"{len(lost)} of {len(life['acked'])} acknowledged messages are lost, the first {lost[0][:6]!r}")
        offset = store.offsets.query(GROUP, "T", 0)
        if not life["offset"] <= offset <= store.max_offset("T", 0):
            wrong.append(f"offset {life['offset']} was flushed, it is {offset}, the queue ends at {store.max_offset('T', 0)}")
        message = store.put("T", b"after")
        if store.flush() < message.offset:
            wrong.append("it takes no messages any more")
    return wrong

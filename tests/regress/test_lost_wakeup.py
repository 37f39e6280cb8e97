"""A flush that ends while an event loop takes what the one before has made durable is told to it, too.

Found as tasks that waited for the whole of flush_deadline_ms, where nothing was put meanwhile that woke the loop.
"""
import asyncio
import time

from rmq_store import AsyncMessageStore, MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.status import PutStatus


class Between:
    """In place of a hub's arrivals: the first look at them comes when the next flush has ended."""

    def __init__(self, arrivals, meanwhile):
        self.arrivals, self.meanwhile = arrivals, meanwhile

    def take(self):
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return self.arrivals.take()

    def __getattr__(self, name):
        return getattr(self.arrivals, name)


def signals(fd):
    with open(f"/proc/self/fdinfo/{fd}") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith("eventfd-count"))


def test_a_flush_that_ends_while_the_loop_looks(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    store = MessageStore.open(tmp_path / "s", flush_mode="sync", flush_backend="fdatasync", flush_deadline_ms=3_600_000,
                              segment_size_bytes=1 << 18, index_enabled=False, _io=probe)

    async def main():
        async with AsyncMessageStore(store) as s:
            hub = s._hub()
            await s.put("T", b"warm")
            probe.hold("fdatasync", "/commitlog/")
            first = asyncio.ensure_future(s.put("T", b"1"))
            await asyncio.sleep(0)
            probe.wait_held(1)
            second = s.put_async("T", b"2")                 # the flush after the one that is held
            waits = asyncio.ensure_future(asyncio.wait_for(second, 30))
            await asyncio.sleep(0)

            def next_flush():
                while not second.done():
                    time.sleep(0.001)
                for _ in range(100):                        # its signal, where there is one: the fault's chance, no more
                    if signals(hub._arrivals.fileno()) > 1:
                        break
                    time.sleep(0.001)

            hub._arrivals = Between(hub._arrivals, next_flush)
            probe.release()
            assert (await waits).status is PutStatus.PUT_OK and (await first).status is PutStatus.PUT_OK

    asyncio.run(main())

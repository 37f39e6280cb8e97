"""A service around a store: each line that a client sends over a Unix socket is put as a message, and answered once it is on
the device: `ok OFFSET`, or `error WHY`. docs/running-as-a-service.md runs it under systemd and in a container.

SIGTERM: no new lines are taken, those under way are answered, the store is closed, exit code 0. A write or sync that failed:
exit code 1, so that whoever started it starts it again, and the open recovers. Standard library and rmq_store, nothing else.
"""
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys

from rmq_store import AsyncMessageStore
from rmq_store.errors import DiskFull, DurabilityError, RmqStoreError

LINE_MAX = 1 << 20


class Service:
    """The connections of one store."""

    def __init__(self, store: AsyncMessageStore) -> None:
        self.store = store
        self.stop = asyncio.Event()
        self.failed: DurabilityError | None = None
        self._open: dict[asyncio.Task[None], tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one client until it hangs up, or `end` does."""
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = reader, writer
        try:
            while (line := await reader.readline()).endswith(b"\n"):    # else it hung up amid a line: not taken, not answered
                writer.write(await self.answer(line[:-1]))
                await writer.drain()
        except (ConnectionError, ValueError):
            pass                # it hung up, or its line is too long for us: not taken, not answered
        finally:
            del self._open[task]
            writer.close()

    async def answer(self, body: bytes) -> bytes:
        """Puts one message; what the client is told."""
        try:
            put = await self.store.put("orders", body, wait=True)
        except DiskFull as error:           # heals by itself
            return f"error {error}\n".encode()
        except DurabilityError as error:    # does not: see the head of this file
            self.failed = error
            self.stop.set()
            return f"error {error}\n".encode()
        except RmqStoreError as error:
            return f"error {error}\n".encode()
        if put.status.name != "PUT_OK":     # stored, and not known to be on the device
            return f"error {put.status.name}\n".encode()
        return b"ok %d\n" % put.offset

    async def end(self) -> None:
        """Takes no more lines; returns when those under way are answered."""
        for reader, writer in self._open.values():
            writer.transport.pause_reading()        # type: ignore[attr-defined]
            reader.feed_eof()
        await asyncio.gather(*self._open, return_exceptions=True)


def tell_systemd(state: str) -> None:
    """sd_notify(3): `READY=1`, `STOPPING=1`. Nothing where nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.connect("\0" + address[1:] if address[0] == "@" else address)
            notify.sendall(state.encode())


class Journal(logging.Formatter):
    """`<4>rmq_store.flush: ...`: the journal takes the number for the line's priority (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        priority = 3 if record.levelno >= logging.ERROR else 4 if record.levelno >= logging.WARNING else 6
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())


async def main() -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)     # before the open, which may recover for long
    path = os.path.join(os.environ["RUNTIME_DIRECTORY"], "orders.sock")
    async with await AsyncMessageStore.open(os.path.join(os.environ["STATE_DIRECTORY"], "orders-store"),
                                            flush_mode="sync") as store:
        service = Service(store)
        service.stop = stop
        if os.path.exists(path):        # of one that was killed; the store's lock has told that it is gone
            os.unlink(path)
        server = await asyncio.start_unix_server(service.connected, path, limit=LINE_MAX)
        tell_systemd("READY=1")
        await stop.wait()
        tell_systemd("STOPPING=1")
        server.close()
        await service.end()
    with contextlib.suppress(FileNotFoundError):        # Python 3.13 and later remove it when the server closes
        os.unlink(path)
    return 0 if service.failed is None else 1


if __name__ == "__main__":
    handler = logging.StreamHandler()
    handler.setFormatter(Journal("%(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    sys.exit(asyncio.run(main()))

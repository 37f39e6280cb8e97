"""One thread that serves frames on sockets: reads, hands whole requests to a function, writes its answers.

Bounds: CONNECTIONS_MAX connections, FRAME_MAX bytes a frame, BUFFERED_MAX bytes of unfinished frames of all connections,
IDLE_S seconds of silence. A connection with an unread answer is not read, so a slow client holds only its own connection.
"""
import errno
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from rmq_store.remoting.frame import ONEWAY, RESPONSE, BadFrame, Frame, decode, encode, frame_size

__all__ = ["Connection", "Loop"]

CONNECTIONS_MAX = 1024
BUFFERED_MAX = 64 << 20
IDLE_S = 120.0
PAUSE_S = 0.5           # after an accept for which the process or the machine had no descriptor or memory
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
READ = 1 << 16


class Connection:
    """One peer: what came of a frame, and what it has not taken of an answer."""

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock, self.heard = sock, now
        self.come, self.out = bytearray(), bytearray()


class Loop:
    """Serves one listening socket. `serve` runs in one thread; only `stop` may be called from others and from handlers."""

    def __init__(self, host: str, port: int, on_request: Callable[[Connection, Frame], Frame],
                 on_close: Callable[[Connection], None]) -> None:
        """Listens at once. Raises OSError if the address cannot be had."""
        self._on_request, self._on_close = on_request, on_close
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        self._listener.setblocking(False)
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._connections: set[Connection] = set()
        self._buffered = 0
        self._accept_at: float | None = None    # until then no connection is taken
        self._stopped = False
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def stop(self) -> None:
        """Lets `serve` return."""
        self._stopped = True
        with suppress(BlockingIOError, OSError):
            self._waker.send(b"\0")

    def serve(self) -> None:
        """Serves until `stop`, then closes every socket."""
        try:
            while not self._stopped:
                for key, events in self._selector.select(1.0):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.data, Connection):
                        self._serve_one(key.data, events)
                self._sweep(time.monotonic())
        finally:
            for connection in [*self._connections]:
                self._close(connection)
            self._selector.close()
            for sock in (self._listener, self._woken, self._waker):
                sock.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in NO_ROOM:      # the listener stays ready: without a pause this thread would spin
                self._selector.unregister(self._listener)
                self._accept_at = time.monotonic() + PAUSE_S
            return                          # else the peer has gone
        if len(self._connections) >= CONNECTIONS_MAX:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, time.monotonic())
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _serve_one(self, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = connection.sock.recv(READ)
                if not data:
                    raise ConnectionResetError
                connection.heard = time.monotonic()
                connection.come += data
                self._buffered += len(data)
            self._write(connection)
            while not connection.out and self._request(connection):
                self._write(connection)
            if self._buffered > BUFFERED_MAX and connection.come:
                raise BadFrame(f"unfinished frames of all connections are over {BUFFERED_MAX} bytes")
        except BlockingIOError:
            return
        except (OSError, BadFrame):         # as RocketMQ does: no answer, the connection is closed
            self._close(connection)
            return
        self._selector.modify(connection.sock, selectors.EVENT_WRITE if connection.out else selectors.EVENT_READ, connection)

    def _request(self, connection: Connection) -> bool:
        """Answers the first whole request that has come; false if there is none."""
        size = frame_size(connection.come[:8])
        if not size or len(connection.come) < size:
            return False
        frame = decode(connection.come[:size])
        del connection.come[:size]
        self._buffered -= size
        if not frame.flag & RESPONSE:
            answer = self._on_request(connection, frame)
            if not frame.flag & ONEWAY:
                connection.out += encode(answer)
        return True

    def _write(self, connection: Connection) -> None:
        if connection.out:
            try:
                del connection.out[:connection.sock.send(connection.out)]
            except BlockingIOError:
                return

    def _sweep(self, now: float) -> None:
        for connection in [c for c in self._connections if now - c.heard > IDLE_S]:
            self._close(connection)
        if self._accept_at is not None and now >= self._accept_at:
            self._accept_at = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._buffered -= len(connection.come)
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._on_close(connection)

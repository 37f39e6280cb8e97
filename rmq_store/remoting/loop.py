"""One thread that serves frames on sockets: reads, hands whole requests to a function, writes its answers.

Any thread may send a frame to a connection: an answer that was held back, or a request of the server's own. Bounds:
`connections_max` connections, FRAME_MAX bytes a frame, BUFFERED_MAX bytes of unfinished frames of all connections, OUT_MAX
bytes that one peer has not taken and OUT_OF_ALL_MAX that all have not, IDLE_S seconds of silence. A connection with an unread
answer is not read, so a slow client holds only its own connection.
"""
import errno
import itertools
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from rmq_store.remoting.client import address_text
from rmq_store.remoting.frame import ONEWAY, RESPONSE, BadFrame, Frame, decode, encode, frame_size

__all__ = ["Connection", "Loop"]

CONNECTIONS_MAX = 1024
BUFFERED_MAX = 64 << 20
OUT_MAX = 48 << 20
OUT_OF_ALL_MAX = 512 << 20
IDLE_S = 120.0
PAUSE_S = 0.5           # after an accept for which the process or the machine had no descriptor or memory
SWEEP_S = 1.0
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
READ = 1 << 16
_ids = itertools.count(1)

OnRequest = Callable[["Connection", Frame], Frame | None]


class Connection:
    """One peer: what came of a frame, and what it has not taken of the answers. `send` and `close` may be called in any thread;
    the rest belongs to the loop's thread."""

    def __init__(self, sock: socket.socket, now: float, loop: "Loop", on_request: OnRequest) -> None:
        self.sock, self.heard = sock, now
        self.id = next(_ids)
        self.peer, self.local = "", ""
        with suppress(OSError):         # the peer has gone already
            self.peer, self.local = address_text(sock.getpeername()), address_text(sock.getsockname())
        self.come, self.out = bytearray(), bytearray()
        self.on_request = on_request
        self.closed = False
        self.events = selectors.EVENT_READ
        self._loop = loop
        self._lock = threading.Lock()

    def send(self, data: bytes) -> bool:
        """Sends a whole frame, now or when the peer takes it. False: the connection has ended, or its peer takes nothing."""
        with self._lock:
            if self.closed:
                return False
            rest = self._try(data) if not self.out else data
            if not rest:
                return True
            if len(self.out) + len(rest) > OUT_MAX or not self._loop.keep(len(rest)):
                self._loop.close_soon(self)
                return False
            self.out += rest
        self._loop.look_at(self)
        return True

    def close(self) -> None:
        """Ends the connection soon."""
        self._loop.close_soon(self)

    def write(self) -> bool:
        """Writes what waits. Returns whether nothing waits any more. Raises OSError."""
        with self._lock:
            if self.out:
                with suppress(BlockingIOError):
                    sent = self.sock.send(self.out)
                    del self.out[:sent]
                    self._loop.keep(-sent)
            return not self.out

    def end(self) -> None:
        """The loop has let it go."""
        with self._lock:
            self.closed = True
            self._loop.keep(-len(self.out))
            self.sock.close()

    def _try(self, data: bytes) -> bytes | memoryview:
        """Writes what the socket takes at once. Returns the rest. The lock is held."""
        try:
            return memoryview(data)[self.sock.send(data):]
        except BlockingIOError:
            return data
        except OSError:             # the loop's next read finds it, too
            self._loop.close_soon(self)
            return b""


class Loop:
    """Serves listening sockets. `serve` runs in one thread, in which handlers are called; `stop` may be called from any."""

    def __init__(self, host: str, port: int, on_request: OnRequest, on_close: Callable[[Connection], None], *,
                 connections_max: int | None = None) -> None:
        """Listens at once. Raises OSError if the address cannot be had."""
        self._on_close = on_close
        self._connections_max = connections_max
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listeners: list[socket.socket] = []
        self._connections: set[Connection] = set()
        self._buffered = 0
        self._kept = 0          # bytes that peers have not taken
        self._paused: list[tuple[socket.socket, OnRequest]] = []    # listeners that take no connection until _accept_at
        self._accept_at: float | None = None
        self._sweep_at = 0.0
        self._stopped = False
        self._asked = threading.Lock()
        self._to_look: set[Connection] = set()
        self._to_close: set[Connection] = set()
        try:
            self.address = self.listen(host, port, on_request)
        except BaseException:
            self._end()
            raise

    def listen(self, host: str, port: int, on_request: OnRequest) -> tuple[str, int]:
        """Listens on one address more, whose requests go to `on_request`. Before `serve`. Returns the address. Raises
        OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
        listener.setblocking(False)
        self._listeners.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, on_request)
        address: tuple[str, int] = listener.getsockname()[:2]
        return address

    def stop(self) -> None:
        """Lets `serve` return."""
        self._stopped = True
        self._wake()

    def close(self) -> None:
        """Closes a loop that nobody serves."""
        self._end()

    def keep(self, size: int) -> bool:
        """Counts bytes that wait for a peer, or, if negative, do not wait any more. False: there are too many. Any thread."""
        with self._asked:
            if size > 0 and self._kept + size > OUT_OF_ALL_MAX:
                return False
            self._kept += size
            return True

    def look_at(self, connection: Connection) -> None:
        """Something waits to be written to it. Any thread."""
        with self._asked:
            self._to_look.add(connection)
        self._wake()

    def close_soon(self, connection: Connection) -> None:
        """Any thread."""
        with self._asked:
            self._to_close.add(connection)
        self._wake()

    def serve(self) -> None:
        """Serves until `stop`, then closes every socket."""
        try:
            while not self._stopped:
                for key, events in self._selector.select(1.0):
                    if isinstance(key.data, Connection):
                        if not key.data.closed:
                            self._serve_one(key.data, events)
                    elif key.fileobj is self._woken:
                        self._do_asked()
                    else:
                        self._accept(key.fileobj, key.data)     # type: ignore[arg-type]
                self._sweep(time.monotonic())
        finally:
            self._end()

    def _end(self) -> None:
        for connection in [*self._connections]:
            self._close(connection)
        self._selector.close()
        for sock in (*self._listeners, self._woken, self._waker):
            sock.close()

    def _wake(self) -> None:
        with suppress(BlockingIOError, OSError):
            self._waker.send(b"\0")

    def _do_asked(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        with self._asked:
            look, self._to_look = self._to_look, set()
            close, self._to_close = self._to_close, set()
        for connection in close:
            if not connection.closed:
                self._close(connection)
        for connection in look:
            if not connection.closed:
                self._serve_one(connection, 0)

    def _accept(self, listener: socket.socket, on_request: OnRequest) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:
            if error.errno in NO_ROOM:      # the listener stays ready: without a pause this thread would spin
                self._selector.unregister(listener)
                self._paused.append((listener, on_request))
                self._accept_at = time.monotonic() + PAUSE_S
            return                          # else the peer has gone
        if len(self._connections) >= (self._connections_max or CONNECTIONS_MAX):
            sock.close()
            return
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, time.monotonic(), self, on_request)
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
            while connection.write() and self._request(connection):
                pass
            if self._buffered > BUFFERED_MAX and connection.come:
                raise BadFrame(f"unfinished frames of all connections are over {BUFFERED_MAX} bytes")
        except BlockingIOError:
            return
        except (OSError, BadFrame):         # as RocketMQ does: no answer, the connection is closed
            self._close(connection)
            return
        except Exception:                   # a handler's: it costs this connection, and not the server
            logging.getLogger("rmq_store.remoting").exception("a request of %s failed", connection.peer)
            self._close(connection)
            return
        wanted = selectors.EVENT_WRITE if connection.out else selectors.EVENT_READ
        if wanted != connection.events:
            self._selector.modify(connection.sock, wanted, connection)
            connection.events = wanted

    def _request(self, connection: Connection) -> bool:
        """Answers the first whole request that has come; false if there is none."""
        size = frame_size(connection.come[:8])
        if not size or len(connection.come) < size:
            return False
        frame = decode(connection.come[:size])
        del connection.come[:size]
        self._buffered -= size
        if not frame.flag & RESPONSE:
            answer = connection.on_request(connection, frame)
            if answer is not None and not frame.flag & ONEWAY:
                connection.send(encode(answer))
        return True

    def _sweep(self, now: float) -> None:
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            for connection in [c for c in self._connections if now - c.heard > IDLE_S]:
                self._close(connection)
        if self._accept_at is not None and now >= self._accept_at:
            self._accept_at = None
            for listener, on_request in self._paused:
                self._selector.register(listener, selectors.EVENT_READ, on_request)
            self._paused.clear()

    def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._buffered -= len(connection.come)
        self._selector.unregister(connection.sock)
        connection.end()
        self._on_close(connection)

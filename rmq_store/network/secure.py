"""TLS for the listeners of a broker or a name server (RocketMQ: HandshakeHandler).

The network thread has no TLS. It gives a connection that begins with a handshake to `Tls.take`. One thread here speaks TLS with
all such peers, and passes the bytes on through socket pairs, whose other ends the network thread serves as it does any peer. So
plain connections pay nothing, and a server without TLS loads nothing of this.

Nothing is buffered beyond one piece each way: a peer that does not read is not read. A peer is cut off if its handshake takes
longer than HANDSHAKE_S, or if it takes nothing for STUCK_S; the network thread ends silent peers, as it does others.
"""
import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rmq_store.base.io.threads import start_thread
from rmq_store.errors import ConfigError
from rmq_store.remoting.tls import SERVER_FILES, server_context

__all__ = ["Tls"]

PIECE = 1 << 16             # bytes that are taken at once
TURNS = 8                   # pieces each way, before another peer has its turn
CONNECTIONS_MAX = 5000
HANDSHAKE_S = 10.0
STUCK_S = 120.0             # without a byte that the peer takes
LOOK_S = 1.0                # between two looks whether a certificate changed
WANTS: dict[int | None, int] = {ssl.SSL_ERROR_WANT_READ: select.EPOLLIN, ssl.SSL_ERROR_WANT_WRITE: select.EPOLLOUT}
log = logging.getLogger("rmq_store.network")
_doors: "weakref.WeakSet[Tls]" = weakref.WeakSet()


class _Pipe:
    """One peer: `peer` speaks TLS, `inner` is our end of the pair."""

    __slots__ = ("begun", "deadline", "inner", "origin", "peer", "to_inner", "to_peer", "watched")

    def __init__(self, peer: ssl.SSLSocket, origin: bytes) -> None:
        self.peer, self.origin, self.begun = peer, origin, False
        self.inner: socket.socket | None = None
        self.to_inner = self.to_peer = b""
        self.watched = [0, 0]           # what epoll watches of the peer, and of the pair
        self.deadline = time.monotonic() + HANDSHAKE_S


class Tls:
    """adopt: NativeFront.adopt. `take` may be called from any thread; all else happens in the thread of this object."""

    def __init__(self, options: Mapping[str, Any], adopt: Callable[[int, bytes], object]) -> None:
        """Raises ConfigError."""
        self._options, self._adopt = options, adopt
        self._seen, self._context = self._files(), server_context(options)
        self._look_at = self._sweep_at = 0.0
        self._problem = ""
        self._new: deque[tuple[int, bytes]] = deque()
        self._lock = threading.Lock()
        self._pipes: dict[int, _Pipe] = {}      # by both descriptors
        self._again: set[_Pipe] = set()         # those that may have more at once
        self._count = 0
        self._ended = False
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        _doors.add(self)
        try:
            self._thread = start_thread(self._run, "rmq-tls")
        except BaseException:
            self._epoll.close()
            os.close(self._wake)
            raise

    def take(self, fd: int, origin: bytes) -> None:
        with self._lock:
            if self._ended:
                os.close(fd)
                return
            self._new.append((fd, origin))
            os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Cuts every peer off. Idempotent."""
        with self._lock:
            self._ended = True
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)
        self._thread.join()
        with self._lock:
            wake, self._wake = self._wake, -1
        if wake >= 0:
            os.close(wake)

    # ---- certificates

    def _files(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for name in SERVER_FILES:
            try:
                s = os.stat(self._options[name])
                found.append((s.st_ino, s.st_size, s.st_mtime_ns))
            except OSError:
                found.append(None)
        return found

    def _newest(self) -> ssl.SSLContext:
        """With new files for new connections. What is wrong with them is logged, and the old ones stay."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            seen = self._files()
            if seen != self._seen:
                try:
                    self._context, self._seen, self._problem = server_context(self._options), seen, ""
                    log.info("the certificate of the server was read again")
                except ConfigError as error:
                    if str(error) != self._problem:
                        self._problem = str(error)
                        log.error("the certificate stays as it was: %s", error)
        return self._context

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._ended:
                wait = 0 if self._again else LOOK_S if self._count else -1
                for fd, _ in self._epoll.poll(wait):
                    if fd == self._wake:
                        with contextlib.suppress(BlockingIOError):
                            os.eventfd_read(self._wake)
                        self._open_new()
                    elif fd in self._pipes:
                        self._again.add(self._pipes[fd])
                ready, self._again = self._again, set()
                for pipe in ready:
                    self._step(pipe)
                self._cut_off_late()
        finally:
            for pipe in {*self._pipes.values()}:
                self._step(pipe)            # what was answered goes out, as far as the peer takes it at once
                self._close(pipe)
            with self._lock:
                self._ended = True
                while self._new:
                    os.close(self._new.popleft()[0])
            self._epoll.close()

    def _open_new(self) -> None:
        while self._new:
            fd, origin = self._new.popleft()
            sock = socket.socket(fileno=fd)
            if self._count >= CONNECTIONS_MAX:
                sock.close()
                continue
            try:
                sock.setblocking(False)
                peer = self._newest().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except (OSError, ValueError) as error:
                log.debug("a TLS connection ended: %s", error)
                sock.close()
                continue
            pipe = _Pipe(peer, origin)
            self._pipes[peer.fileno()] = pipe
            self._count += 1
            self._again.add(pipe)

    def _cut_off_late(self) -> None:
        now = time.monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + LOOK_S
        for pipe in {*self._pipes.values()}:
            if pipe.deadline <= now and (pipe.to_peer or not pipe.begun):
                self._close(pipe)

    def _step(self, pipe: _Pipe) -> None:
        """All that can be done for a peer without waiting, up to TURNS pieces."""
        if pipe.peer.fileno() < 0:
            return
        try:
            wanted, inner_wanted = self._move(pipe)
            self._watch(pipe, 0, pipe.peer, wanted)
            if pipe.inner is not None:
                self._watch(pipe, 1, pipe.inner, inner_wanted)
        except (OSError, ValueError, MemoryError) as error:     # it has gone, or sends what is no TLS; or the front has ended
            log.debug("a TLS connection ended: %s", error)
            self._close(pipe)
        except Exception:               # it costs this connection, and no other
            log.exception("a TLS connection failed")
            self._close(pipe)

    def _watch(self, pipe: _Pipe, which: int, sock: socket.socket, events: int) -> None:
        before, pipe.watched[which] = pipe.watched[which], events
        if events == before:
            return
        if before and events:
            self._epoll.modify(sock, events)
        elif events:
            self._epoll.register(sock, events)
        else:
            self._epoll.unregister(sock)

    def _move(self, pipe: _Pipe) -> tuple[int, int]:
        """What to watch of the peer, and of the pair. Raises OSError at the end of either."""
        if not pipe.begun:
            try:
                pipe.peer.do_handshake()
            except ssl.SSLError as error:
                if error.errno in WANTS:
                    return WANTS[error.errno], 0
                raise
            self._begin(pipe)
        assert pipe.inner is not None
        wanted = inner_wanted = 0
        for _ in range(TURNS):
            coming, of_peer = self._from_peer(pipe)
            going, to_peer = self._to_peer(pipe)
            wanted = of_peer | to_peer
            if not coming and not going:
                break
        else:
            self._again.add(pipe)
        inner_wanted = (select.EPOLLOUT if pipe.to_inner else 0) | (0 if pipe.to_peer else select.EPOLLIN)
        return wanted, inner_wanted

    def _begin(self, pipe: _Pipe) -> None:
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.setblocking(False)
            self._adopt(theirs.fileno(), pipe.origin)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        theirs.detach()
        pipe.inner, pipe.begun = ours, True
        self._pipes[ours.fileno()] = pipe

    def _from_peer(self, pipe: _Pipe) -> tuple[bool, int]:
        """(whether bytes moved, what to watch the peer for)."""
        assert pipe.inner is not None
        if not pipe.to_inner:
            try:
                pipe.to_inner = pipe.peer.recv(PIECE)
            except ssl.SSLError as error:
                if error.errno in WANTS:
                    return False, WANTS[error.errno]
                raise
            if not pipe.to_inner:
                raise ConnectionResetError("the peer said good-bye")
        try:
            sent = pipe.inner.send(pipe.to_inner)
        except BlockingIOError:
            return False, 0             # the network thread does not read this peer
        pipe.to_inner = pipe.to_inner[sent:]
        return True, select.EPOLLIN

    def _to_peer(self, pipe: _Pipe) -> tuple[bool, int]:
        assert pipe.inner is not None
        if not pipe.to_peer:
            try:
                pipe.to_peer = pipe.inner.recv(PIECE)
            except BlockingIOError:
                return False, 0
            if not pipe.to_peer:
                raise ConnectionResetError("the network thread ended the connection")
            pipe.deadline = time.monotonic() + STUCK_S
        try:
            sent = pipe.peer.send(pipe.to_peer)     # the same bytes again where it has to be asked again
        except ssl.SSLError as error:
            if error.errno in WANTS:
                return False, WANTS[error.errno]
            raise
        pipe.to_peer = pipe.to_peer[sent:]
        pipe.deadline = time.monotonic() + STUCK_S
        return True, 0

    def _close(self, pipe: _Pipe) -> None:
        """Closing a descriptor takes it out of epoll. Idempotent."""
        if pipe.peer.fileno() < 0:
            return
        self._again.discard(pipe)
        self._count -= 1
        if pipe.begun:
            with contextlib.suppress(OSError, ValueError):
                pipe.peer.unwrap()          # says good-bye, and does not wait for the peer's
        for sock in (pipe.peer, pipe.inner):
            if sock is not None:
                self._pipes.pop(sock.fileno(), None)
                sock.close()

    def _forked(self) -> None:
        """The thread and its lock did not come along; the sockets did, and a peer must see them closed by its parent."""
        self._lock = threading.Lock()
        self._ended = True
        for pipe in {*self._pipes.values()}:
            for sock in (pipe.peer, pipe.inner):
                if sock is not None and sock.fileno() >= 0:
                    os.close(sock.detach())
        while self._new:
            os.close(self._new.popleft()[0])


def _in_child() -> None:
    for door in list(_doors):
        door._forked()


os.register_at_fork(after_in_child=_in_child)

"""A wire between a slave and its master that is as bad as wires are: by seed it cuts, dawdles, passes single bytes on, closes
one direction before the other, and says wrong offsets in heartbeats."""
import contextlib
import random
import socket
import struct
import threading

PIECES = 1, 7, 100, 4096, 65536
LIFE = 5000         # pieces that a connection lasts: a dawdling one would be there for ever


class Wire:
    """Listens for slaves and connects each to `master`, "ip:port". While `bad`, every connection has a life of its own that the
    seed gives it; then they are plain. Ends with the block."""

    def __init__(self, master: str, seed: int) -> None:
        host, _, port = master.rpartition(":")
        self.master, self.bad, self.cuts, self.lies = (host, int(port)), True, 0, 0
        self._random, self._ended = random.Random(seed), threading.Event()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.mend()
        for thread in self._threads:
            thread.join()

    def mend(self) -> None:
        """Cuts every connection; the next ones are good."""
        self.bad = False
        for s in list(self._open):
            _shut(s)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                slave, _ = self._listener.accept()
            except OSError:
                continue
            try:
                master = socket.create_connection(self.master)
            except OSError:
                slave.close()
                continue
            self._open |= {slave, master}
            if self._ended.is_set():
                _shut(slave), _shut(master)
            life = random.Random(self._random.random())
            self._start(self._carry, slave, master, life.random(), False)
            self._start(self._carry, master, slave, life.random(), True)

    def _carry(self, source: socket.socket, to: socket.socket, seed: float, frames: bool) -> None:
        r = random.Random(seed)
        long = [300_000, 1 << 40] if self.cuts else []      # the first connection does not last: what is sent may be little
        piece, lazy = (r.choice(PIECES), r.random() < 0.3) if self.bad else (65536, False)
        rest = min(r.choice([200, 3000, 50_000, *long]), LIFE * piece) if self.bad else 1 << 40
        lies, beats = self.bad and frames and r.random() < 0.5, Heartbeats(r)
        try:
            while rest > 0 and (data := source.recv(min(piece, rest))):
                rest -= len(data)
                if lazy:
                    self._ended.wait(r.random() / 500)
                to.sendall(beats.changed(data) if lies else data)
            self.cuts += rest <= 0
            if r.random() < 0.5:        # one direction first
                to.shutdown(socket.SHUT_WR)
                self._ended.wait(r.random() / 50)
        except OSError:
            pass
        self.lies += beats.lies
        _shut(source)
        _shut(to)
        self._open -= {source}
        source.close()


class Heartbeats:
    """Adds 1 to the offsets of a master's heartbeats, or takes 1 away, in a stream that comes in pieces."""

    def __init__(self, r: random.Random) -> None:
        self._random, self._head, self._body, self.lies = r, b"", 0, 0

    def changed(self, data: bytes) -> bytes:
        out = b""
        while data:
            if self._body:
                out, data, self._body = out + data[:self._body], data[self._body:], self._body - min(self._body, len(data))
                continue
            self._head, data = self._head + data[:12 - len(self._head)], data[12 - len(self._head):]
            if len(self._head) == 12:
                offset, self._body = struct.unpack(">qi", self._head)
                if self._body == 0 and self._random.random() < 0.5:
                    offset, self.lies = offset + self._random.choice((-1, 1)), self.lies + 1
                out += struct.pack(">qi", offset, self._body)
                self._head = b""
        return out


def _shut(s: socket.socket) -> None:
    with contextlib.suppress(OSError):
        s.shutdown(socket.SHUT_RDWR)

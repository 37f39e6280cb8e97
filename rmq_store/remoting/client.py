"""One connection to a server of RocketMQ remoting, on which one thread asks and waits for the answer (RocketMQ:
NettyRemotingClient, invokeSync)."""
import itertools
import socket
import threading
import time

from rmq_store.remoting.frame import RESPONSE, BadFrame, Frame, decode, encode, frame_size

__all__ = ["Client", "NoAnswer", "address_text", "split_address"]

TIMEOUT_S = 3.0
READ = 1 << 16


class NoAnswer(OSError):
    """The server answered with another code than success. `code` is RocketMQ's."""

    def __init__(self, request: int, code: int, remark: str) -> None:
        super().__init__(f"it answers request {request} with code {code}: {remark:.200}")
        self.code = code


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT or [HOST]:PORT in two parts. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is no address: give HOST:PORT")
    return host.strip("[]"), int(port)


def address_text(address: tuple[str, int]) -> str:
    """(host, port) as host:port, or [host]:port."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Client:
    """Connects when it is first asked, and again after a failure. One thread asks; any thread may call `cut` and `close`."""

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S, version: int = 479) -> None:
        """address: HOST:PORT. timeout_s: of the connection, and of each answer as a whole. Raises ValueError."""
        self.address, self._timeout_s, self._version = address, timeout_s, version
        self._host, self._port = split_address(address)
        self._opaque = itertools.count(1)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Frame:
        """The answer with code 0. Raises NoAnswer for another one, and OSError. After an OSError that is no NoAnswer the next
        question begins with a new connection."""
        request = Frame(code, next(self._opaque), ext or {}, body, language="JAVA", version=self._version)
        try:
            answer = self._exchange(encode(request), request.opaque)
        except (OSError, BadFrame) as error:
            self.cut()
            if isinstance(error, BadFrame):
                raise OSError(f"it sends no frames of RocketMQ: {error}") from None
            raise
        if answer.code != 0:
            raise NoAnswer(code, answer.code, answer.remark)
        return answer

    def _connected(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        made = socket.create_connection((self._host, self._port), timeout=self._timeout_s)
        with self._lock:
            if not self._closed:
                self._socket = made
                return made
        made.close()
        raise OSError("the connection was closed here")

    def _exchange(self, request: bytes, opaque: int) -> Frame:
        sock = self._connected()
        deadline = time.monotonic() + self._timeout_s
        sock.settimeout(self._timeout_s)
        sock.sendall(request)
        data = bytearray()
        while True:
            size = frame_size(data[:8])
            if size and len(data) >= size:
                frame = decode(bytes(data[:size]))
                del data[:size]
                if frame.flag & RESPONSE and frame.opaque == opaque:
                    return frame
                continue            # what it asks itself, or an answer that came too late
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"it has not answered within {self._timeout_s:g} s")
            sock.settimeout(left)
            more = sock.recv(READ)
            if not more:
                raise OSError("it closed the connection")
            data += more

    def cut(self) -> None:
        """Ends the connection; whoever waits for an answer meets an OSError."""
        with self._lock:
            sock, self._socket = self._socket, None
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:             # it has ended
                pass
            sock.close()

    def close(self) -> None:
        """Ends the connection for good."""
        with self._lock:
            self._closed = True
        self.cut()

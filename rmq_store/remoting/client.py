"""One connection to a server of RocketMQ remoting, on which one thread asks and waits for the answer (RocketMQ:
NettyRemotingClient, invokeSync); and addresses that somebody gave, to connect to, to listen on, and to tell to clients."""
import errno
import itertools
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rmq_store.config.values import ip_bytes
from rmq_store.errors import ConfigError
from rmq_store.remoting.frame import RESPONSE, BadFrame, Frame, decode, encode, frame_size

if TYPE_CHECKING:
    import ssl

__all__ = ["Client", "NoAnswer", "address_text", "advertise_text", "listen_address", "listening", "servers", "split_address"]

TIMEOUT_S = 3.0
READ = 1 << 16
CUT = "the connection was closed here"


class _Kept(OSError):
    """A connection that was kept for the next question had ended."""


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

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S, version: int = 479,
                 tls: "ssl.SSLContext | None" = None) -> None:
        """address: HOST:PORT. timeout_s: of the connection, of its TLS handshake, and of each answer as a whole. tls: None for
        a plain connection. Raises ValueError."""
        self.address, self._timeout_s, self._version, self._tls = address, timeout_s, version, tls
        self._host, self._port = split_address(address)
        self._opaque = itertools.count(1)
        self.connections = 0            # that it has made: another number, and the server may have begun anew
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._asks = self._spoilt = self._closed = False        # spoilt: the connection ends when nobody asks on it

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Frame:
        """The answer with code 0. Raises NoAnswer for another one, and OSError. After an OSError that is no NoAnswer the next
        question begins with a new connection. A question that meets the end of a connection which was kept is asked once more:
        it may have come there twice."""
        request = Frame(code, next(self._opaque), ext or {}, body, language="JAVA", version=self._version)
        try:
            answer = self._asked(request)
        except _Kept:               # it ended while nobody asked: the server was begun anew, or ends what is silent
            answer = self._asked(request)
        if answer.code != 0:
            raise NoAnswer(code, answer.code, answer.remark)
        return answer

    def _asked(self, request: Frame) -> Frame:
        """The answer, whatever its code. Raises OSError."""
        with self._lock:
            self._asks, kept = True, self._socket is not None
        try:
            return self._exchange(encode(request), request.opaque)
        except BaseException as error:
            cut, self._spoilt = self._spoilt or self._closed, True
            if isinstance(error, BadFrame):
                raise OSError(f"it sends no frames of RocketMQ: {error}") from None
            if isinstance(error, ValueError) or (cut and isinstance(error, OSError)):   # the former: between two steps of TLS
                raise OSError(CUT) from None
            if kept and isinstance(error, ConnectionError):
                raise _Kept from None
            raise
        finally:
            with self._lock:
                self._asks = False
                self._let_go()

    def _connected(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        made = socket.create_connection((self._host, self._port), timeout=self._timeout_s)
        self.connections += 1
        secret = None
        if self._tls is not None:
            made = secret = self._tls.wrap_socket(made, do_handshake_on_connect=False)
        with self._lock:
            self._socket = made
            if self._closed or self._spoilt:
                raise OSError(CUT)
        if secret is not None:
            self._shake_hands(secret)
        return made

    def _shake_hands(self, sock: "ssl.SSLSocket") -> None:
        try:
            sock.do_handshake()         # the timeout of the socket is that of the whole
        except TimeoutError:
            raise TimeoutError(f"it has not finished the TLS handshake within {self._timeout_s:g} s") from None
        except OSError as error:
            wrong = getattr(error, "verify_message", "")
            raise OSError(f"the TLS handshake failed: {wrong}: tls.client.trustCertPath has to name who signed its certificate"
                          if wrong else f"the TLS handshake failed: {getattr(error, 'reason', None) or error}: does it serve "
                          "TLS there?") from None

    def _ended(self, error: OSError | None) -> ConnectionError:
        """What the end of a connection, with or without an error, most likely means."""
        said = "it closed the connection" if error is None else str(error)
        if self._tls is None:
            return ConnectionError(f"{said}; is it the port of a broker or name server? If it takes nothing but TLS, see "
                                   "tls.enable in docs/broker.md")
        return ConnectionError(f"{said}; if it asks for a certificate, give tls.client.certPath and tls.client.keyPath")

    def _exchange(self, request: bytes, opaque: int) -> Frame:
        sock = self._connected()
        deadline = time.monotonic() + self._timeout_s
        sock.settimeout(self._timeout_s)
        try:
            sock.sendall(request)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._ended(error) from None
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
            try:
                more = sock.recv(READ)
            except TimeoutError:
                continue
            except OSError as error:
                raise self._ended(error) from None
            if not more:
                raise self._ended(None)
            data += more

    def cut(self) -> None:
        """Ends the connection; whoever waits for an answer meets an OSError."""
        with self._lock:
            self._spoilt = True
            if self._asks and self._socket is not None:     # whoever asks closes it: TLS goes on reading from a number
                with suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            self._let_go()

    def close(self) -> None:
        """Ends the connection for good."""
        self._closed = True
        self.cut()

    def _let_go(self) -> None:
        """Under the lock."""
        if self._asks or not (self._spoilt or self._closed):
            return
        sock, self._socket, self._spoilt = self._socket, None, False
        if sock is not None:
            sock.close()


# ---- addresses in options, whose errors name the option and the cure

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")
_CURES = {errno.EADDRINUSE: "another process listens there: end it, or give another port; port 0 chooses a free one",
          errno.EADDRNOTAVAIL: "this machine does not have that address: give one of its own, or 0.0.0.0 for all of them",
          errno.EACCES: "ports below 1024 need a permission: give a higher port"}


def _is_ipv6(text: str) -> bool:
    try:
        return ":" in text and len(ip_bytes(text)) == 16
    except ValueError:
        return False


def _split(text: object, port_min: int) -> tuple[str, int] | None:
    """Host without brackets, and port; None for what is no HOST:PORT."""
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ipv6(host):
            return None
    elif not _HOST.fullmatch(host):     # an IPv6 address without brackets too: its end may be a port, or not
        return None
    return (host, int(port)) if colon and port.isascii() and port.isdecimal() and port_min <= int(port) <= 65535 else None


def listen_address(text: object, what: str, example: str = "127.0.0.1:10911") -> tuple[str, int]:
    """HOST:PORT or [IPV6]:PORT in two parts. what: the option. Raises ConfigError."""
    if (found := _split(text, 0)) is None:
        raise ConfigError(f"{what} is {text!r}: give HOST:PORT, as in {example} or [::1]:{example.rpartition(':')[2]}; port 0 "
                          "chooses a free one")
    return found


def servers(text: str, what: str) -> list[tuple[str, int]]:
    """HOST:PORT;HOST:PORT of name servers. Raises ConfigError."""
    found = []
    for one in filter(None, (part.strip() for part in text.split(";"))):
        if (address := _split(one, 1)) is None:
            raise ConfigError(f"{what} is {text!r}: give HOST:PORT of each name server, as in 127.0.0.1:9876;10.0.0.7:9876")
        found.append(address)
    return found


def advertise_text(text: str, what: str) -> str:
    """HOST or HOST:PORT as clients are to get it; an IPv6 address in brackets. Raises ConfigError."""
    text = text.strip()
    if _is_ipv6(text.strip("[]")):
        return f"[{text.strip('[]')}]"
    if not text or _HOST.fullmatch(text) or _split(text, 1) is not None:
        return text
    raise ConfigError(f"{what} is {text!r}: give HOST or HOST:PORT, as in broker.example or 10.0.0.7:10911 or [fd00::7]:10911")


@contextmanager
def listening(what: str, address: tuple[str, int]) -> Iterator[None]:
    """Names the option in an OSError of the block, which listens on `address`."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:      # of something else, which it names
            raise
        cure = _CURES.get(error.errno or 0, "is the name right? give an IP address of this machine")
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise OSError(error.errno, f"cannot listen on {address_text(address)} ({what}): {why}; {cure}") from None

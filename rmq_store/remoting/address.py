"""Addresses that somebody gave: to listen on, to connect to, and to tell to clients. Errors name the option and the cure.

Control plane. Thread-safety: every function.
"""
import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from rmq_store.config.values import ip_bytes
from rmq_store.errors import ConfigError
from rmq_store.remoting.client import address_text

__all__ = ["advertise_text", "listen_address", "listening", "servers"]

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

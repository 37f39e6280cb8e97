"""Hosts and message ids as bytes and as text. Pure functions, any thread; no clock, no network.

    offset message id (32 or 56 upper-case hex digits)       client unique id, UNIQ_KEY (32 or 56 hex digits)
    +------------+--------+-------------------+              +------------+-------+----------+-----------+---------+
    | 4 | 16     | port 4 | physical offset 8 |              | ip 4 | 16  | pid 2 | loader 4 | time ms 4 | count 2 |
    +------------+--------+-------------------+              +------------+-------+----------+-----------+---------+

The time of a unique id counts from the start of the local month. Source: MessageDecoder.createMessageId and decodeMessageId,
MessageClientIDSetter, MessageExt.socketAddress2ByteBuffer.
"""
import itertools
import os
import time
from functools import lru_cache

from rmq_store.config.values import ip_bytes, ip_text
from rmq_store.errors import ArgumentIllegal, MessageIllegal
from rmq_store.fields import NamedTuple

__all__ = ["MessageId", "UniqueId", "UniqueIdFactory", "create_message_id", "decode_message_id",
           "decode_unique_id", "host_bytes", "host_text", "java_ip_text", "split_host"]

_MAPPED = bytes(10) + b"\xff\xff"      # an IPv4 address as sixteen bytes


class MessageId(NamedTuple):
    """Where a record lies: `host` is "ip:port" or "[v6]:port" of the store, `offset` the physical offset."""

    host: str
    offset: int


class UniqueId(NamedTuple):
    """What a client unique id says. `timestamp` is in ms since 1970, of the last such moment before "now"."""

    ip: str
    pid: int
    loader_hash: int
    timestamp: int
    counter: int


def host_bytes(host: str) -> bytes:
    """"ip:port" -> 8 bytes, "[v6]:port" -> 20 bytes, as a record stores them. MessageIllegal for anything else, names included.

    An IPv4 address in IPv6 clothes (::ffff:192.0.2.1) is IPv4, as Java's InetAddress has it.
    """
    if not isinstance(host, str):
        raise MessageIllegal(f"host is {type(host).__name__}, not text: write \"192.0.2.10:10911\" or \"[2001:db8::1]:10911\"")
    return _host_bytes(host)


@lru_cache(maxsize=4096)
def _host_bytes(host: str) -> bytes:
    ip, separator, port = host.strip().rpartition(":")
    if ip.startswith("[") and ip.endswith("]"):
        ip = ip[1:-1]
    try:
        packed = ip_bytes(ip) if separator and "%" not in ip else b""
    except ValueError:
        packed = b""
    if not packed or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise MessageIllegal(f"host {host!r} is not address:port: write \"192.0.2.10:10911\" or \"[2001:db8::1]:10911\", with "
                             "a number in place of a name and a port up to 65535")
    if packed.startswith(_MAPPED):
        packed = packed[12:]
    return packed + int(port).to_bytes(4, "big")


@lru_cache(maxsize=4096)
def host_text(data: bytes) -> str:
    """The 8 or 20 bytes of a record -> "ip:port" or "[v6]:port"; any port a record can hold. ValueError for another length."""
    ip, port = split_host(data)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def split_host(data: bytes) -> tuple[str, int]:
    """The 8 or 20 bytes of a record -> (ip text, port)."""
    data = bytes(data)
    if len(data) not in (8, 20):
        raise ValueError(f"a host has 8 bytes, or 20 with IPv6, not {len(data)}")
    return ip_text(data[:-4]), int.from_bytes(data[-4:], "big", signed=True)


def java_ip_text(address: bytes) -> str:
    """4 or 16 address bytes as Java's getHostAddress writes them: IPv6 in eight groups, nothing left out."""
    if len(address) == 4:
        return ip_text(address)
    if len(address) != 16:
        raise ValueError(f"an address has 4 bytes, or 16 with IPv6, not {len(address)}")
    if address.startswith(_MAPPED):
        return ip_text(address[12:])
    return ":".join(f"{int.from_bytes(address[i:i + 2], 'big'):x}" for i in range(0, 16, 2))


def create_message_id(host: str | bytes, offset: int) -> str:
    """Offset message id of a record at `offset` in the store `host` (text, or the 8 or 20 bytes). Upper-case hex."""
    packed = host_bytes(host) if isinstance(host, str) else bytes(host)
    if len(packed) not in (8, 20):
        raise ValueError(f"a host has 8 bytes, or 20 with IPv6, not {len(packed)}")
    if not -1 << 63 <= offset < 1 << 63:
        raise ValueError(f"offset {offset} does not fit eight bytes")
    return (packed + offset.to_bytes(8, "big", signed=True)).hex().upper()


def decode_message_id(message_id: str) -> MessageId:
    """Offset message id -> MessageId(host, offset). ValueError if it is not 32 or 56 hex digits."""
    data = _unhex(message_id, (16, 28))
    return MessageId(host_text(data[:-8]), int.from_bytes(data[-8:], "big", signed=True))


class UniqueIdFactory:
    """Makes client unique ids (UNIQ_KEY) as MessageClientIDSetter does; one of them for a process is enough.

    ip: this machine's address as text; None: four bytes of the first clock reading, as RocketMQ does where it finds none.
    loader_hash: any number that tells two factories of one process apart; by default the object's own identity.
    Thread-safety: any thread may call create.
    """

    def __init__(self, ip: str | None = None, *, pid: int | None = None, loader_hash: int | None = None,
                 now_ms: int | None = None) -> None:
        address = (_now(now_ms) & 0xFFFFFFFF).to_bytes(4, "big") if ip is None else ip_bytes(ip)
        pid = os.getpid() if pid is None else pid
        loader_hash = id(self) >> 4 if loader_hash is None else loader_hash
        process = (pid & 0xFFFF).to_bytes(2, "big") + (loader_hash & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = (address + process).hex().upper()
        self._counter = itertools.count()
        self._month = (0, 0)

    def create(self, now_ms: int | None = None) -> str:
        """One more id, 32 hex digits (56 with IPv6). now_ms: the clock, for whoever has read it already."""
        now = _now(now_ms)
        begin, end = self._month
        if now >= end:
            begin, end = self._month = _month_of(now)
        span = now - begin
        if -1_000_000 < span < 0:       # the clock was set back a little across the start of a month
            span = 0
        return f"{self._prefix}{span & 0xFFFFFFFF:08X}{next(self._counter) & 0xFFFF:04X}"


def decode_unique_id(unique_id: str, now_ms: int | None = None) -> UniqueId:
    """What a client unique id says. Its month is not in it: the last one that puts it before now is taken, as RocketMQ does.

    ValueError if it is not 32 or 56 hex digits.
    """
    data = _unhex(unique_id, (16, 28))
    now = _now(now_ms)
    span = int.from_bytes(data[-6:-2], "big")
    begin = _month_of(now)[0]
    if begin + span >= now:
        begin = _month_of(begin - 1)[0]
    return UniqueId(ip_text(data[:-12]), int.from_bytes(data[-12:-10], "big"),
                    int.from_bytes(data[-10:-6], "big", signed=True), begin + span, int.from_bytes(data[-2:], "big"))


def _unhex(text: str, sizes: tuple[int, ...]) -> bytes:
    try:
        data = bytes.fromhex(text) if isinstance(text, str) else b""        # Python 3.14 takes bytes, too
    except ValueError:
        data = b""
    if len(data) not in sizes or len(text) != 2 * len(data):
        raise ArgumentIllegal(f"message id {text!r:.80} is not {' or '.join(str(2 * n) for n in sizes)} hexadecimal digits: "
                              "give the message_id of a put, or the msg_id of a message")
    return data


def _now(now_ms: int | None) -> int:
    return time.time_ns() // 1_000_000 if now_ms is None else now_ms


def _month_of(now_ms: int) -> tuple[int, int]:
    # Start of the local month that holds now, and of the next one, in milliseconds.
    local = time.localtime(now_ms // 1000)
    year, month = local.tm_year, local.tm_mon
    begin = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((year + month // 12, month % 12 + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(begin) * 1000, int(end) * 1000

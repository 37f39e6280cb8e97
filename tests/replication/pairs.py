"""Masters and slaves of a test: small stores, their logs compared byte for byte, and peers made of a socket."""
import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from rmq_store import MessageStore, promote
from rmq_store.replication.mark import read_mark
from tests.soon import until

SMALL = {"segment_size_bytes": 65536, "consumequeue_file_size_bytes": 2000, "index_slots": 64, "index_entries_max": 2000,
         "message_size_max_bytes": 40000, "timer_wheel_enable": False, "pool_window_size_bytes": 65536,
         "ha_send_heartbeat_interval_ms": 200}


def master(path: Path, **more: object) -> MessageStore:
    """Also of what was a slave: it is promoted."""
    if (mark := read_mark(str(path))) is not None and mark.role == "slave":
        promote(path, force=True, **{k: v for k, v in {**SMALL, **more}.items() if not k.startswith("ha_") and k != "role"})
    return MessageStore.open(path, **{**SMALL, "ha_listen": "127.0.0.1:0", **more})


def slave(path: Path, of: MessageStore | str, **more: object) -> MessageStore:
    address = of if isinstance(of, str) else of.replication().address
    return MessageStore.open(path, **{**SMALL, "role": "slave", "ha_master": address, **more})


def fill(store: MessageStore, count: int, seed: int = 0, size: int = 900) -> None:
    """Messages of three topics with keys; some are batches, some are half of a transaction."""
    r = random.Random(seed)
    for i in range(count):
        body = r.randbytes(r.randrange(size))
        store.put(f"T{i % 3}", body, queue_id=i % 2, keys=f"k{i}", tags="a", wait=False,
                  **({"sys_flag": 4} if i % 17 == 16 else {}))
    store.wait_dispatched(30)


def joined(leader: MessageStore) -> None:
    """A slave has said where it begins: an empty one that comes later gets only the last file."""
    until(lambda: any(r.offset >= 0 for r in leader.replicas()), 20_000)


def caught_up(follower: MessageStore, leader: MessageStore) -> None:
    until(lambda: follower.max_log_offset == leader.max_log_offset, 20_000)
    assert follower.wait_dispatched(30)
    assert leader.wait_dispatched(30)       # a slave may be there first: its acknowledgement waits for no queue


def log_of(path: Path, begin: int, end: int) -> bytes:
    """Bytes of the commit log."""
    files = sorted(p for p in (path / "commitlog").iterdir() if p.name.isdigit())
    found = b"".join(p.read_bytes() for p in files if int(p.name) + SMALL["segment_size_bytes"] > begin)
    first = max(begin - begin % SMALL["segment_size_bytes"], int(files[0].name)) if files else 0
    return found[begin - first:end - first]


def same_log(one: MessageStore, other: MessageStore) -> int:
    """The logs are equal, byte by byte, from where both have them. Returns how many bytes were compared."""
    begin = max(one.min_log_offset, other.min_log_offset)
    end = one.max_log_offset
    assert other.max_log_offset == end
    a, b = log_of(Path(one.path), begin, end), log_of(Path(other.path), begin, end)
    assert len(a) == end - begin
    assert a == b
    return len(a)


def queues_of(store: MessageStore) -> list[tuple[str, int]]:
    return [(topic, queue_id) for topic in store.topics() for queue_id in store.queues(topic)]


def content_of(store: MessageStore, topic: str, queue_id: int) -> list[tuple]:
    return [(m.queue_offset, bytes(m.body), m.keys) for m in store.scan(topic, queue_id)]


def same_queues(leader: MessageStore, follower: MessageStore) -> None:
    """What readers get from the one they get from the other."""
    assert queues_of(leader) == queues_of(follower) != []
    for queue in queues_of(leader):
        assert content_of(leader, *queue) == content_of(follower, *queue) != []


class Peer:
    """A socket that speaks the protocol byte by byte."""

    def __init__(self, s: socket.socket) -> None:
        self.socket = s
        s.settimeout(20)

    def report(self, offset: int) -> None:
        self.socket.sendall(struct.pack(">q", offset))

    def frame(self, offset: int, data: bytes = b"", size: int | None = None) -> None:
        self.socket.sendall(struct.pack(">qi", offset, len(data) if size is None else size) + data)

    def exactly(self, n: int) -> bytes:
        got = b""
        while len(got) < n:
            more = self.socket.recv(n - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def read_frame(self) -> tuple[int, bytes]:
        offset, size = struct.unpack(">qi", self.exactly(12))
        assert 0 <= size <= 32768
        return offset, self.exactly(size)

    def read_report(self) -> int:
        return struct.unpack(">q", self.exactly(8))[0]

    def closed_by_peer(self) -> bool:
        """Reads until the end."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        return True


@contextlib.contextmanager
def connected(store: MessageStore) -> Iterator[Peer]:
    """A slave made of a socket."""
    host, _, port = store.replication().address.rpartition(":")
    with socket.create_connection((host, int(port))) as s:
        yield Peer(s)


class Listening:
    """A master made of a socket: accepts one slave after the other."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(20)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"

    @contextlib.contextmanager
    def accept(self) -> Iterator[Peer]:
        s, _ = self.listener.accept()
        with s:
            yield Peer(s)

    def __enter__(self) -> "Listening":
        return self

    def __exit__(self, *exc: object) -> None:
        self.listener.close()

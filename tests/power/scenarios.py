"""Which stores lose their power: back ends and write paths first, then what else a store does, then large and odd ones."""
from dataclasses import dataclass
from typing import Any

HOUR_MS = 3_600_000
SMALL: dict[str, Any] = {
    "segment_size_bytes": 256 << 10, "consumequeue_file_size_bytes": 20 * 300, "index_slots": 101, "index_entries_max": 500,
    "message_size_max_bytes": 128 << 10, "pool_window_size_bytes": 256 << 10, "pool_window_count": 4,
}
# No flush but those that somebody waits for: a cut meets as much as can be.
HELD: dict[str, Any] = {
    "flush_interval_ms": HOUR_MS, "flush_interval_max_ms": HOUR_MS, "consumequeue_flush_interval_ms": HOUR_MS,
    "consumequeue_flush_interval_max_ms": HOUR_MS,
}
SHORT: dict[str, Any] = {"flush_interval_ms": 20, "consumequeue_flush_interval_ms": 30, "consumequeue_flush_pages_min": 0}
# Few files of the log begin, each of which is a sync: more is written between two flushes.
LONG = {"segment_size_bytes": 4 << 20}
MANY_QUEUE_FILES = {"consumequeue_file_size_bytes": 20 * 40}
EXT = {"consumequeue_ext_enabled": True, "consumequeue_ext_file_size_bytes": 1 << 16}
CRC = {"record_crc": True, "record_crc_required": True}


@dataclass(frozen=True)
class Scenario:
    """options: of the store. does: what else happens ("clean", "delay", "consumer", "delete"). hold: the disk lets writes
    overtake each other. lives: processes that are killed one after the other before the power fails. trouble: in the first life
    the disk "lags", or "refuses" some writes, once much waits to be written. early: messages are told durable before they are,
    which the judge must find."""

    name: str
    options: dict[str, Any]
    does: frozenset[str] = frozenset()
    hold: bool = False
    lives: int = 1
    trouble: str = ""
    early: bool = False
    body_max: int = 3000
    messages: int = 500             # of one producer
    image_bytes: int = 512 << 20

    @property
    def sync(self) -> bool:
        """Whether a put that returns PUT_OK is durable."""
        return self.options.get("flush_mode") == "sync" or self.options.get("profile") == "durable"


def _store(path: str, mode: str, backend: str, *more: dict[str, Any], **options: Any) -> dict[str, Any]:
    made = SMALL | HELD
    for some in more:
        made |= some
    return made | {"write_path": path, "flush_mode": mode, "flush_backend": backend} | options


_MMAP, _POOL = _store("mmap", "sync", "fdatasync"), _store("pool", "sync", "fdatasync")
_RING = _store("pool", "sync", "io_uring")

# The first ten are what a short run takes.
SCENARIOS = [
    Scenario("mmap-msync", _store("mmap", "sync", "msync")),
    Scenario("pool-fdatasync", _POOL, hold=True),
    Scenario("uring-direct", _RING, hold=True),
    Scenario("mmap-async", _store("mmap", "async", "fdatasync", LONG), messages=1000),
    Scenario("pool-async", _store("pool", "async", "fdatasync", LONG), hold=True, messages=1000),
    Scenario("queues-mmap", _MMAP | MANY_QUEUE_FILES),
    Scenario("queues-pool-async", _store("pool", "async", "fdatasync", LONG, MANY_QUEUE_FILES)),
    Scenario("killed-mmap", _store("mmap", "async", "fdatasync"), lives=3),
    Scenario("clean", _MMAP | SHORT, frozenset({"clean"})),
    Scenario("consumer", _POOL | {"offsets_flush_interval_ms": 150}, frozenset({"consumer"})),
    Scenario("delay", _MMAP | {"delay_levels": "1s 2s", "delay_offset_flush_interval_ms": 200}, frozenset({"delay"})),
    Scenario("mmap-fdatasync", _MMAP),
    Scenario("uring-linked", _RING | {"uring_durability": "fdatasync"}, hold=True),
    Scenario("uring-buffered", _RING | {"uring_direct": "off"}, hold=True),
    Scenario("uring-async", _store("pool", "async", "io_uring", LONG), hold=True, messages=1000),
    Scenario("mmap-async-msync", _store("mmap", "async", "msync")),
    Scenario("pool-msync", _store("pool", "sync", "msync")),
    Scenario("short-intervals", _store("pool", "async", "fdatasync", SHORT), hold=True),
    Scenario("clean-uring", _RING, frozenset({"clean"}), hold=True),
    Scenario("delay-pool", _POOL | {"delay_levels": "1s 2s", "delay_offset_flush_interval_ms": 200}, frozenset({"delay"})),
    Scenario("consumer-async", _store("mmap", "async", "fdatasync", offsets_flush_interval_ms=150), frozenset({"consumer"})),
    Scenario("delete", _MMAP, frozenset({"delete"})),
    Scenario("delete-and-clean", _POOL | SHORT, frozenset({"delete", "clean", "consumer"})),
    Scenario("ext", _MMAP | EXT),
    Scenario("ext-async", _store("pool", "async", "fdatasync", EXT)),
    Scenario("record-crc", _store("pool", "async", "fdatasync", CRC), hold=True),
    Scenario("index-safe", _MMAP | {"index_recover_safe": True}),
    Scenario("compat-4.9", _MMAP | {"compat": "4.9"}),
    Scenario("killed-pool", _POOL, lives=3, hold=True),
    Scenario("killed-clean", _MMAP | SHORT, frozenset({"clean", "delete"}), lives=3),
    # Files as large as they are by default, which the file system makes without writing them; and cut to a small disk.
    Scenario("default-sizes", {"profile": "durable"}, image_bytes=24 << 30),
    Scenario("default-sizes-async", {"write_path": "pool", **HELD}, image_bytes=24 << 30, messages=1000),
    Scenario("sizes-of-a-small-disk", {"flush_mode": "sync"}, image_bytes=4 << 30),
    # More than recovery rewrites: not flushed when the process is killed, or refused by the device and still in the cache.
    Scenario("far-behind", _store("mmap", "async", "fdatasync", segment_size_bytes=16 << 20), lives=2, trouble="lags",
             body_max=100_000, messages=3500, image_bytes=2 << 30),
    Scenario("refused-writes", _store("mmap", "async", "fdatasync", segment_size_bytes=64 << 20), lives=2, trouble="refuses",
             body_max=100_000, messages=3500, image_bytes=2 << 30),
]
EARLY = Scenario("told-early", _store("mmap", "async", "fdatasync"), early=True)
BY_NAME = {scenario.name: scenario for scenario in [*SCENARIOS, EARLY]}

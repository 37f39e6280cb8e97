"""A toy store in a few lines, with switches for the mistakes that crash tests must find. It proves the model and the explorer.

One pre-allocated log of records (size, magic, CRC of the rest, own offset, body size; body; properties), a checkpoint that is
replaced by rename. All I/O goes through a ProbeIo.
"""
import os
import struct
import zlib

from rmq_store.base.io._io import ProbeIo
from tests.crash.disk import Image

HEAD = struct.Struct(">IIIQI")
MAGIC = 0xDAA320A7
LOG_SIZE = 16384


class Toy:
    """bugs: "ack_first", "body_crc", "no_checkpoint_sync", "no_dir_sync", "ignore_short", "retry_sync", "wrong_msync_range"."""

    def __init__(self, io: ProbeIo, root: str, *bugs: str, mapped: bool = False) -> None:
        self.io, self.root, self.bugs, self.end = io, root, bugs, 0
        self.log = io.open(f"{root}/log", os.O_RDWR | os.O_CREAT)
        io.fallocate(self.log, 0, LOG_SIZE)
        io.fsync(self.log)
        if "no_dir_sync" not in bugs:
            io.sync_dir(root)
        self.map = io.mmap(self.log, 0, LOG_SIZE, True) if mapped else None

    def close(self) -> None:
        if self.map is not None:
            self.io.munmap(self.map, LOG_SIZE)
        self.io.close(self.log)

    def put(self, body: bytes, properties: bytes) -> None:
        """Returns when the record is durable, or raises OSError."""
        covered = body if "body_crc" in self.bugs else body + properties
        size = HEAD.size + len(body) + len(properties)
        record = HEAD.pack(size, MAGIC, zlib.crc32(covered), self.end, len(body)) + body + properties
        begin, self.end = self.end, self.end + size
        if self.map is not None:
            self.io.map_store(self.log, begin, self.map + begin, record)
        else:
            self._write(begin, record)
        if "ack_first" in self.bugs:
            self.io.mark(("ack", body, properties))
        self._sync(begin)
        if "ack_first" not in self.bugs:
            self.io.mark(("ack", body, properties))

    def _write(self, offset: int, data: bytes) -> None:
        while data:
            n = self.io.pwrite(self.log, data, offset)
            if "ignore_short" in self.bugs:
                return
            data, offset = data[n:], offset + n

    def _sync(self, begin: int) -> None:
        try:
            if self.map is None:
                self.io.fdatasync(self.log)
            else:
                first = begin & ~4095
                if "wrong_msync_range" in self.bugs:
                    self.io.msync(self.log, self.map + first, 4096)
                else:
                    self.io.msync(self.log, self.map + first, self.end - first)
        except OSError:
            if "retry_sync" not in self.bugs:
                raise
            self.io.fdatasync(self.log)

    def checkpoint(self) -> None:
        data = struct.pack(">Q", self.end)
        fd = self.io.open(f"{self.root}/checkpoint.tmp", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.io.pwrite(fd, data + struct.pack(">I", zlib.crc32(data)), 0)
        if "no_checkpoint_sync" not in self.bugs:
            self.io.fsync(fd)
        self.io.close(fd)
        self.io.rename(f"{self.root}/checkpoint.tmp", f"{self.root}/checkpoint")
        self.io.sync_dir(self.root)


def recover(image: Image, *bugs: str) -> list[tuple[bytes, bytes]]:
    """The messages in the log of an image. ValueError where the checkpoint is broken."""
    if "checkpoint" in image:
        data = image["checkpoint"] or b""
        if len(data) < 12 or zlib.crc32(data[:8]) != int.from_bytes(data[8:12], "big"):
            raise ValueError("checkpoint broken")
    log, at, out = image.get("log") or b"", 0, []
    while at + HEAD.size <= len(log):
        size, magic, crc, offset, body_size = HEAD.unpack_from(log, at)
        if magic != MAGIC or offset != at or not HEAD.size + body_size <= size <= len(log) - at:
            break
        body = log[at + HEAD.size:at + HEAD.size + body_size]
        properties = log[at + HEAD.size + body_size:at + size]
        if zlib.crc32(body if "body_crc" in bugs else body + properties) != crc:
            break
        out.append((body, properties))
        at += size
    return out


def messages(n: int) -> list[tuple[bytes, bytes]]:
    """Bodies and properties that span several sectors each."""
    return [(bytes([65 + i]) * 700, b"k%d=" % i + bytes([97 + i]) * 600) for i in range(n)]

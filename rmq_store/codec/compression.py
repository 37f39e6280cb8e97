"""Bodies that a producer compressed: the bits of sysFlag, inflating on request, deflating for tests and tools.

The store itself never touches a body. zlib is in the standard library; LZ4 (frames) and ZSTD need the packages lz4 and
zstandard (the extra "compression" brings both; Python 3.14 has zstd itself), which are imported when first needed. Pure
functions, any thread.
Source: CompressionType, MessageSysFlag, ZlibCompressor, Lz4Compressor, ZstdCompressor.
"""
import zlib
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from typing import Any

from rmq_store.codec._layout import FLAG_COMPRESSED, FLAG_COMPRESSION_TYPE
from rmq_store.errors import CorruptionError

__all__ = ["INFLATED_SIZE_MAX", "CompressionType", "compression_type", "deflate", "inflate"]

INFLATED_SIZE_MAX = 64 << 20
_ZSTD_PIECE = 256


class CompressionType(IntEnum):
    """How a body is compressed; the value is what bits 8 to 10 of sysFlag hold."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @classmethod
    def of(cls, name: str) -> "CompressionType":
        """By name, in any case, with blanks around it. ValueError for an unknown one."""
        try:
            return cls[name.strip().upper()]
        except KeyError:
            raise ValueError(f"compression type {name!r} is unknown: it is zlib, lz4 or zstd") from None

    @property
    def flag(self) -> int:
        """The bits of sysFlag for a body compressed so, COMPRESSED included."""
        return FLAG_COMPRESSED | self << 8


def compression_type(sys_flag: int) -> CompressionType | None:
    """How a body with this sysFlag is compressed; None: not at all. Without type bits it is ZLIB (old clients).

    ValueError for type bits that mean nothing.
    """
    if not sys_flag & FLAG_COMPRESSED:
        return None
    kind = (sys_flag & FLAG_COMPRESSION_TYPE) >> 8
    if kind > CompressionType.ZLIB:
        raise ValueError(f"sysFlag 0x{sys_flag:x} names compression type {kind}: 0 to 3 are known")
    return CompressionType(kind or CompressionType.ZLIB)


def inflate(body: bytes | bytearray | memoryview, sys_flag: int, max_size: int = INFLATED_SIZE_MAX) -> bytes:
    """The body as its producer had it; a copy of it where sysFlag says that it is not compressed.

    max_size: bytes that the result may have; a body that would become larger is not inflated any further. Raises
    CorruptionError for a body that is damaged, cut short or larger, or of unknown compression, and ModuleNotFoundError where a
    package is missing.
    """
    try:
        kind = compression_type(sys_flag)
    except ValueError as error:
        raise CorruptionError("sysFlag of a message", None, "a known compression type", str(error)) from None
    data = bytes(memoryview(body))
    if kind is None:
        return data
    inflate_one, failures = _INFLATERS[kind]()
    out = bytearray()
    while True:
        try:
            part, whole, rest = inflate_one(data, max_size + 1 - len(out))
        except failures as error:
            raise CorruptionError("body of a message", None, f"a {kind.name} stream", str(error)) from None
        out += part
        if len(out) > max_size:
            raise CorruptionError("body of a message", None, f"at most {max_size} bytes once inflated", "more of them")
        if not whole:
            raise CorruptionError("body of a message", None, f"a whole {kind.name} stream", "one that is cut short")
        if not rest or kind is CompressionType.ZLIB:    # LZ4 and ZSTD may continue with another frame
            return bytes(out)
        data = rest


def deflate(body: bytes | bytearray | memoryview, kind: CompressionType | str = CompressionType.ZLIB,
            level: int = 5) -> tuple[bytes, int]:
    """A compressed body and the bits to set in sysFlag. kind: a type or its name. Source: Compressor.compress."""
    if isinstance(kind, str):
        kind = CompressionType.of(kind)
    data = bytes(memoryview(body))
    if kind is CompressionType.ZLIB:
        return zlib.compress(data, level), kind.flag
    if kind is CompressionType.LZ4:
        return _package("lz4.frame", "lz4").compress(data, compression_level=level), kind.flag
    stdlib = _stdlib_zstd()
    if stdlib is not None:
        return stdlib.compress(data, level=level), kind.flag
    return _package("zstandard", "zstandard").ZstdCompressor(level=level).compress(data), kind.flag


# An inflater takes data and the bytes still wanted, and returns (bytes, whether the stream ended, what lies behind it).
_Inflater = Callable[[bytes, int], tuple[bytes, bool, bytes]]
_Failures = tuple[type[Exception], ...]


def _zlib() -> tuple[_Inflater, _Failures]:
    def one(data: bytes, limit: int) -> tuple[bytes, bool, bytes]:
        stream = zlib.decompressobj()
        part = stream.decompress(data, limit)
        return part, stream.eof, stream.unused_data
    return one, (zlib.error,)


def _lz4() -> tuple[_Inflater, _Failures]:
    frame = _package("lz4.frame", "lz4")

    def one(data: bytes, limit: int) -> tuple[bytes, bool, bytes]:
        stream = frame.LZ4FrameDecompressor()
        part = stream.decompress(data, max_length=limit)
        return part, stream.eof, stream.unused_data or b""
    return one, (RuntimeError, EOFError)


def _zstd() -> tuple[_Inflater, _Failures]:
    stdlib = _stdlib_zstd()
    if stdlib is not None:
        def one(data: bytes, limit: int) -> tuple[bytes, bool, bytes]:
            stream = stdlib.ZstdDecompressor()
            part = stream.decompress(data, max_length=limit)
            return part, stream.eof, stream.unused_data
        return one, (stdlib.ZstdError, EOFError)
    zstandard = _package("zstandard", "zstandard")

    def bounded(data: bytes, limit: int) -> tuple[bytes, bool, bytes]:
        # zstandard bounds no output, but few input bytes can make only so much of it: four make a block of 128 KiB.
        stream = zstandard.ZstdDecompressor().decompressobj()
        parts = []
        for at in range(0, len(data), _ZSTD_PIECE):
            parts.append(stream.decompress(data[at:at + _ZSTD_PIECE]))
            limit -= len(parts[-1])
            if stream.eof:
                return b"".join(parts), True, stream.unused_data + data[at + _ZSTD_PIECE:]
            if limit <= 0:
                break
        return b"".join(parts), False, b""
    return bounded, (zstandard.ZstdError,)


_INFLATERS = {CompressionType.ZLIB: _zlib, CompressionType.LZ4: _lz4, CompressionType.ZSTD: _zstd}


def _stdlib_zstd() -> Any:
    try:
        return import_module("compression.zstd")
    except ModuleNotFoundError:
        return None


def _package(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"{module.partition('.')[0]} bodies need the package {package}: "
                                  f"pip install {package}, or rmq_store[compression]", name=package) from None

"""sysFlag's compression bits, inflating within a bound, and bodies that are damaged on purpose."""
import random
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_store.codec import compression
from rmq_store.codec.compression import CompressionType, compression_type, deflate, inflate
from rmq_store.errors import CorruptionError
from tests.codec import golden_case as golden


@pytest.fixture(params=["zlib", "lz4", "zstd"])
def kind(request):
    if request.param == "lz4":
        pytest.importorskip("lz4.frame", reason="the package lz4 is not installed")
    if request.param == "zstd" and sys.version_info < (3, 14):
        pytest.importorskip("zstandard", reason="the package zstandard is not installed")
    return request.param


def test_types_in_sys_flag():
    """COD-15."""
    assert compression_type(0) is compression_type(0x300) is None
    assert compression_type(0x1) is compression_type(0x301) is CompressionType.ZLIB
    assert compression_type(0x101) is CompressionType.LZ4
    assert compression_type(0x201) is CompressionType.ZSTD
    with pytest.raises(ValueError, match="compression type 4"):
        compression_type(0x401)
    with pytest.raises(CorruptionError, match="compression type 7"):
        inflate(b"", 0x701)
    for member in CompressionType:
        assert compression_type(member.flag) is member


def test_types_by_name():
    """COD-16."""
    for name in ("zlib", " ZLiB ", "ZLIB"):
        assert CompressionType.of(name) is CompressionType.ZLIB
    for name in ("zstd", "ZStd "):
        assert CompressionType.of(name) is CompressionType.ZSTD
    assert CompressionType.of("lz4") is CompressionType.LZ4
    with pytest.raises(ValueError, match="snappy"):
        CompressionType.of("snappy")


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 4 << 20])
def test_round_trip(kind, size):
    """COD-17."""
    source = random.Random(size)
    body = b"".join(source.choice((b"words ", b"of ", b"a ", b"body ")) for _ in range(size // 2 + 1))[:size]
    packed, flag = deflate(body, kind, 5)
    assert inflate(packed, flag) == inflate(memoryview(packed), flag | 0x2) == body
    assert inflate(packed, flag, max_size=size) == body
    if size:
        with pytest.raises(CorruptionError, match="at most"):
            inflate(packed, flag, max_size=size - 1)


def test_noise_survives(kind):
    body = random.Random(1).randbytes(300_000)
    packed, flag = deflate(bytearray(body), CompressionType.of(kind))
    assert inflate(packed, flag) == body


def test_a_body_that_is_not_compressed_is_copied():
    assert inflate(bytearray(b"plain"), 0x300) == b"plain"


def test_a_bomb_is_not_inflated(kind):
    packed, flag = deflate(bytes(200 << 20), kind)
    assert len(packed) < 2 << 20
    with pytest.raises(CorruptionError, match="at most 1000 bytes"):
        inflate(packed, flag, max_size=1000)


def test_damaged_bodies(kind):
    packed, flag = deflate(b"some words of a body " * 50, kind)
    for data in (b"", packed[:-1], packed[:len(packed) // 2], packed[:5], b"no such stream", b"\0" * 40):
        with pytest.raises(CorruptionError, match="body of a message"):
            inflate(data, flag)


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data):
    for flag in (0x1, 0x101, 0x201):
        try:
            inflate(data, flag, max_size=10_000)
        except (CorruptionError, ModuleNotFoundError):
            pass


def test_what_lies_behind_the_stream(kind):
    """As Java's streams: zlib stops at its end, LZ4 and ZSTD go on with the next frame."""
    packed, flag = deflate(b"first ", kind)
    more, _ = deflate(b"second", kind)
    assert inflate(packed + more, flag) == (b"first " if kind == "zlib" else b"first second")
    if kind == "zlib":
        assert inflate(packed + b"noise", flag) == b"first "


@pytest.mark.parametrize(("kind", "package"), [("lz4", "lz4"), ("zstd", "zstandard")])
def test_a_missing_package_is_named(monkeypatch, kind, package):
    def absent(name):
        raise ModuleNotFoundError(name)
    monkeypatch.setattr(compression, "import_module", absent)
    flag = CompressionType.of(kind).flag
    for call in (lambda: inflate(b"body", flag), lambda: deflate(b"body", kind)):
        with pytest.raises(ModuleNotFoundError, match=f"pip install {package}"):
            call()


@pytest.mark.parametrize("case", ["v4-plain", "v5-plain"])
def test_bodies_that_java_stored_compressed(case):
    seen = 0
    for line in golden.expected(case):
        if line["t"] == "msg" and line["sysFlag"] & 1:
            body = bytes.fromhex(line["body"])
            assert inflate(body, line["sysFlag"]) == zlib.decompress(body)
            seen += 1
    assert seen

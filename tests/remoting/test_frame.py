"""Frames: bytes of real clients' form, both headers, many mutations; a bad one raises BadFrame and nothing else."""
import random

import pytest

from rmq_store.remoting.frame import BINARY, FRAME_MAX, HEADER_MAX, JSON, BadFrame, Frame, decode, encode, frame_size

EXT = {"topic": "T", "i": "k\x01v\x02", "ä": ""}


def framed(header, body=b"", kind=JSON):
    return (4 + len(header) + len(body)).to_bytes(4, "big") + (kind << 24 | len(header)).to_bytes(4, "big") + header + body


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_a_frame_survives(kind):
    frame = Frame(310, 7, EXT, b"body", 2, "remark", "JAVA", 409, kind)
    data = encode(frame)
    assert frame_size(data[:8]) == len(data)
    assert decode(data) == frame


def test_a_header_of_java():
    header = (b'{"code":105,"extFields":{"topic":"TBW102","acceptStandardJsonOnly":"true"},"flag":0,"language":"JAVA",'
              b'"opaque":6,'
              b'"serializeTypeCurrentRPC":"JSON","version":409,"bname":{}}')
    frame = decode(framed(header))
    assert (frame.code, frame.opaque, frame.ext["topic"], frame.language) == (105, 6, "TBW102", "JAVA")


def test_bare_numbers_of_the_cpp_client():
    ext = decode(framed(b'{"code":10,"extFields":{"queueId":0,"unitMode":false}}')).ext
    assert ext == {"queueId": "0", "unitMode": "false"}


def test_binary_header_byte_for_byte():
    header = b"\0\x69" b"\0" b"\x01\x99" b"\0\0\0\x05" b"\0\0\0\0" b"\0\0\0\0" b"\0\0\0\x0c" b"\0\x05topic" b"\0\0\0\x01T"
    frame = Frame(105, 5, {"topic": "T"}, language="JAVA", serialize=BINARY)
    assert decode(framed(header, kind=BINARY)) == frame
    assert encode(frame) == framed(header, kind=BINARY)


@pytest.mark.parametrize("total", [-1, -1 << 31, 0, 3, FRAME_MAX - 3, 20 << 20])
def test_a_size_is_refused_by_its_first_bytes(total):
    with pytest.raises(BadFrame, match=str(total)):
        frame_size(total.to_bytes(4, "big", signed=True))


@pytest.mark.parametrize("mark", [5, HEADER_MAX + 1, 0xFFFFFF, 2 << 24, 0x16 << 24])
def test_a_header_length_and_a_type_are_refused(mark):
    total = 8 if mark == 5 else 1 << 20
    with pytest.raises(BadFrame):
        frame_size(total.to_bytes(4, "big") + mark.to_bytes(4, "big"))


@pytest.mark.parametrize("header", [
    b"", b"[]", b"{", b'{"code":"x"}', b'{"code":true}', b'{"code":1e9}', b'{"code":99999999999}',
    b'{"code":1,"extFields":[1]}',
    b'{"code":1,"extFields":{"a":{}}}', b"[" * 60_000,
    b'{"code":1,"extFields":{' + b",".join(
        b'"%d":"x"' % n for n in range(200)) + b"}}", b"\xff\xfe"])
def test_a_json_header_that_is_none(header):
    with pytest.raises(BadFrame):
        decode(framed(header))


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_mutated_frames(kind):
    rng, good = random.Random(kind), encode(Frame(310, 7, EXT, b"body", 0, "r", serialize=kind))
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)):]
        try:
            frame = decode(data)
        except BadFrame:
            continue
        assert all(isinstance(x, str) for x in (*frame.ext, *frame.ext.values()))

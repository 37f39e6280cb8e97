"""Hosts, offset message ids and client unique ids, both ways."""
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_store.codec.message_id import (
    UniqueIdFactory,
    create_message_id,
    decode_message_id,
    decode_unique_id,
    host_bytes,
    host_text,
    java_ip_text,
    split_host,
)
from rmq_store.errors import MessageIllegal


@pytest.mark.parametrize("host", ["127.0.0.1:9103", "[::1]:0", "[2001:db8::5:600:300c:326b]:65535", "255.255.255.255:65535"])
def test_offset_ids_both_ways(host):
    """COD-10."""
    text = create_message_id(host, 123456)
    assert text == text.upper() and len(text) == (56 if "[" in host else 32)
    assert decode_message_id(text) == decode_message_id(text.lower()) == (host, 123456)


def test_a_known_offset_id():
    assert create_message_id("192.0.2.10:10911", 0x4A44) == "C000020A00002A9F0000000000004A44"
    assert create_message_id(host_bytes("192.0.2.10:10911"), 0) == "C000020A00002A9F0000000000000000"


@given(st.integers(-2**63, 2**63 - 1), st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20))
def test_any_bytes_have_an_id(offset, host):
    assert decode_message_id(create_message_id(host, offset)) == (host_text(host), offset)


@pytest.mark.parametrize("text", ["", "C0", "C000020A00002A9F0000000000004A4", "X000020A00002A9F0000000000004A44", "00" * 17,
                                  "00" * 29, " 00" * 16, None, b"00" * 16])
def test_what_is_no_offset_id(text):
    with pytest.raises(ValueError, match="hexadecimal"):
        decode_message_id(text)
    with pytest.raises(ValueError, match="hexadecimal"):
        decode_unique_id(text)


def test_bytes_of_hosts():
    assert host_bytes("1.2.3.4:5") == bytes([1, 2, 3, 4, 0, 0, 0, 5])
    assert host_bytes("[::1]:65535") == bytes(15) + b"\1\0\0\xff\xff" == host_bytes(" ::1:65535 ")
    assert host_bytes("[::ffff:1.2.3.4]:5") == host_bytes("1.2.3.4:5")      # as Java's InetAddress
    assert split_host(bytes([1, 2, 3, 4, 255, 255, 255, 255])) == ("1.2.3.4", -1)
    assert java_ip_text(host_bytes("[2001:db8::c]:1")[:-4]) == "2001:db8:0:0:0:0:0:c"
    assert java_ip_text(bytes(10) + b"\xff\xff\1\2\3\4") == java_ip_text(b"\1\2\3\4") == "1.2.3.4"
    for data in (b"", bytes(7), bytes(16), bytes(21)):
        with pytest.raises(ValueError, match="8 bytes, or 20"):
            host_text(data)
    with pytest.raises(ValueError, match="4 bytes, or 16"):
        java_ip_text(bytes(5))


@pytest.mark.parametrize("host", ["", "1.2.3.4", "1.2.3.4:", ":5", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:٣", "1.2.3:4",
                                  "localhost:1", "[::1]", "[::1:5", "[fe80::1%eth0]:5", "1.2.3.4:5:6", None, 5, ["1.2.3.4:5"]])
def test_what_is_no_host(host):
    with pytest.raises(MessageIllegal, match=r"192\.0\.2\.10:10911"):
        host_bytes(host)


@pytest.fixture(params=["UTC", "Asia/Shanghai", "America/New_York"])
def timezone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("ip", ["10.1.2.3", "2001:db8::7"])
def test_unique_ids_say_where_and_when(timezone, ip):
    """COD-14."""
    now = 1_700_000_123_456
    factory = UniqueIdFactory(ip, pid=70000, loader_hash=-2)
    first, second = factory.create(now), factory.create(now + 1)
    assert len(first) == (32 if "." in ip else 56) and first == first.upper()
    assert int(second[-4:], 16) - int(first[-4:], 16) == 1
    found = decode_unique_id(first, now + 5000)
    assert (found.ip, found.pid, found.loader_hash, found.timestamp, found.counter) == (ip, 70000 & 0xFFFF, -2, now, 0)


def test_time_counts_from_the_local_month(timezone):
    begin = int(time.mktime((2024, 1, 1, 0, 0, 0, 0, 0, -1))) * 1000
    factory = UniqueIdFactory("1.2.3.4", pid=1)
    assert factory.create(begin)[20:28] == "00000000"
    assert factory.create(begin + 5)[20:28] == "00000005"
    assert factory.create(begin - 1000)[20:28] == "00000000"        # the clock was set back a little
    following = int(time.mktime((2024, 2, 1, 0, 0, 0, 0, 0, -1))) * 1000
    assert factory.create(following - 1)[20:28] == f"{following - 1 - begin:08X}"
    assert factory.create(following + 7)[20:28] == "00000007"
    # An id of the last minute of January, read in February.
    old = UniqueIdFactory("1.2.3.4", pid=1).create(following - 60_000)
    assert decode_unique_id(old, following + 60_000).timestamp == following - 60_000


def test_the_counter_wraps():
    factory = UniqueIdFactory("1.2.3.4")
    ids = [factory.create(1_700_000_000_000) for _ in range(0x10001)]
    assert ids[0xFFFF].endswith("FFFF") and ids[0x10000].endswith("0000")


def test_defaults_of_the_factory():
    one, two = UniqueIdFactory(now_ms=0x17E093E326C), UniqueIdFactory(now_ms=0x17E093E326C)
    assert one.create().startswith("093E326C")      # four bytes of the clock where no address is given
    assert decode_unique_id(one.create()).pid == os.getpid() & 0xFFFF
    assert one.create()[12:20] != two.create()[12:20]
    with pytest.raises(ValueError, match="not-an-ip"):
        UniqueIdFactory("not-an-ip")

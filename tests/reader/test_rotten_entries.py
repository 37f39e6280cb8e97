"""An entry in the middle of a queue that rots: its message is passed over, and no other."""
import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 2000, "index_enabled": False}


@pytest.mark.parametrize("byte", range(12))
@pytest.mark.parametrize("readonly", [False, True])
def test_the_others_are_served(tmp_path, byte, readonly):
    with MessageStore.open(tmp_path, **SMALL) as s:
        for i in range(60):
            s.put("T", b"%d" % i)
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    for bit in range(8):
        data = bytearray(path.read_bytes())
        data[29 * 20 + byte] ^= 1 << bit
        path.write_bytes(data)
        with MessageStore.open(tmp_path, readonly=readonly, **SMALL) as s:
            served, at = [], 0
            while at < s.max_offset("T", 0):
                got = s.get("T", 0, at)
                served += [int(bytes(m.body)) for m in got]
                at = got.next_offset
            assert served == [i for i in range(60) if i != 29]
        data[29 * 20 + byte] ^= 1 << bit
        path.write_bytes(data)

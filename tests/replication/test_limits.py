"""The limits of a slave's options are those of its own puts, when it is promoted, and not of what it copies."""
from pathlib import Path

from tests.replication.pairs import caught_up, joined, master, slave


def test_a_slave_with_lower_limits(tmp_path: Path) -> None:
    sizes = {"segment_size_bytes": 4 << 20, "message_size_max_bytes": 3 << 20}
    with master(tmp_path / "m", **sizes) as m, slave(tmp_path / "s", m, **sizes | {"message_size_max_bytes": 10}) as s:
        joined(m)
        for size in (100, 2_500_000, 70_000, 2_900_000):
            m.put("T", bytes(size))
        caught_up(s, m)
        assert [len(message.body) for message in s.scan("T", 0)] == [100, 2_500_000, 70_000, 2_900_000]

"""Queries by key: which of several keys, whose topic, and what only shares a hash code."""
from pathlib import Path

from rmq_store import MessageStore


def test_a_key_is_a_whole_word_of_KEYS_or_the_unique_key(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", index_slots=100, index_entries_max=200) as store:
        store.put("T", b"0", keys="alpha beta")
        store.put("T", b"1", keys="beta")
        store.put("T", b"2", properties={"UNIQ_KEY": "beta", "KEYS": "gamma"})
        store.put("U", b"3", keys="beta")
        store.put("T", b"4")
        store.wait_dispatched(10)

        def found(key: str, topic: str = "T", **more: bool) -> list[bytes]:
            return [bytes(m.body) for m in store.query_key(topic, key, **more)]

        assert found("beta") == [b"0", b"1", b"2"] and found("alpha") == [b"0"] and found("gamma") == [b"2"]
        assert found("beta", "U") == [b"3"]
        assert found("alph") == found("alpha beta") == found("bet") == found("") == []  # codespell:ignore alph


def test_equal_hash_codes_are_told_apart_unless_asked_not_to(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", index_slots=100, index_entries_max=200) as store:
        store.put("T", b"first", keys="Aa")         # String.hashCode of "Aa" and "BB" is the same
        store.put("T", b"second", keys="BB")
        store.wait_dispatched(10)
        assert [bytes(m.body) for m in store.query_key("T", "BB")] == [b"second"]
        assert [bytes(m.body) for m in store.query_key("T", "BB", exact=False)] == [b"first", b"second"]
        assert store.leases == 0

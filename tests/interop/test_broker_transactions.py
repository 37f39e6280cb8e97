"""Transactions of a real broker (4.9 and 5.3.3): it leaves a store and this library takes it over, and the other way round.

The broker is RocketMQ's own controller, with its service of half messages, its processor of decisions and its check, without a
network (tools/interop/broker/Transactions.java). Pending stays pending, committed is visible once, rolled back is never seen.
"""
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from tests.interop.content import SMALL_FILES
from tests.interop.jvm import FETCH_SECONDS, settings

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "transactions_with_rocketmq.sh"
COMMITTED, PENDING = {f"c{i}" for i in range(4)}, {f"p{i}" for i in range(4)}
ROLLED_BACK = {f"r{i}" for i in range(4)}
pytestmark = pytest.mark.slow        # the jars of two brokers, and a JVM for each question
versions = pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])


def broker(version: str, *arguments: object) -> tuple[set[str], set[str]]:
    """(ids that the broker's check asked for, bodies that its topic shows)."""
    done = subprocess.run([SCRIPT, "--rocketmq", version, *map(str, arguments), *settings(SMALL_FILES)],
                          capture_output=True, text=True, timeout=FETCH_SECONDS)
    if done.returncode == 77:
        pytest.skip(f"the real broker cannot run here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout)
    return set(answer["asked"].split()), set(answer["visible"].split())


def opened(path: Path, version: str, **options: object) -> MessageStore:
    compat = "4.9" if version.startswith("4.") else "5.x"
    return MessageStore.open(path, compat=compat, delay="store_only", **SMALL_FILES, **options)


def visible(store: MessageStore) -> list[str]:
    assert store.wait_dispatched(30)
    return sorted(bytes(m.body).decode() for m in store.scan("T"))


@versions
def test_takes_over_what_a_broker_has_left(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    assert broker(version, "write", path) == (PENDING, COMMITTED)
    shutil.copytree(path, tmp_path / "again")
    with opened(path, version, readonly=True) as store:
        found = {p.id: (p.group, p.topic, p.checks) for p in store.transactions()}
        assert found == dict.fromkeys(PENDING, ("producers", "T", 1))
    with opened(path, version) as store:
        assert {p.id for p in store.transactions()} == PENDING and visible(store) == sorted(COMMITTED)
        for name in COMMITTED:
            assert store.transaction_by_id(name).state == "committed"
        for name in ROLLED_BACK:
            with pytest.raises(errors.TransactionDecided, match="rolled back"):
                store.transaction_by_id(name).commit()
        store.transaction_by_id("p0").commit()
        store.transaction_by_id("p1").rollback()
        assert visible(store) == sorted(COMMITTED | {"p0"})
    # The broker comes back: what is left is pending, and each decision of ours holds.
    assert broker(version, "take", path, "p2", "p3") == ({"p2", "p3"}, COMMITTED | {"p0", "p2"})
    with opened(path, version) as store:
        assert store.transactions() == [] and visible(store) == sorted(COMMITTED | {"p0", "p2"})
        assert store.transaction_by_id("p3").state == "rolled back"
    # A check of this library counts on from the broker's.
    with opened(tmp_path / "again", version) as store:
        store.on_check("producers", lambda t: "unknown")
        store._checker.round(store, store.transaction_by_id("p0").born_timestamp + 3_600_000)
        assert {p.id: p.checks for p in store.transactions()} == dict.fromkeys(PENDING, 2)
    assert broker(version, "take", tmp_path / "again", "-", "-") == (PENDING, COMMITTED)


@versions
def test_a_broker_takes_over_what_this_library_has_left(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path, version) as store:
        for i in range(12):
            name = "crp"[i % 3] + str(i // 3)
            transaction = store.prepare("T", name.encode(), group="producers", queue_id=i % 2, properties={"UNIQ_KEY": name})
            if name[0] != "p":
                (transaction.commit if name[0] == "c" else transaction.rollback)()
        assert visible(store) == sorted(COMMITTED)
    assert broker(version, "take", path, "p0", "p1") == (PENDING, COMMITTED | {"p0"})
    with opened(path, version) as store:
        assert {p.id: p.checks for p in store.transactions()} == {"p2": 1, "p3": 1}
        assert visible(store) == sorted(COMMITTED | {"p0"})
        assert [store.transaction_by_id(name).state for name in ("p0", "p1")] == ["committed", "rolled back"]
        store.transaction_by_id("p2").commit()
    assert broker(version, "take", path, "p3", "-") == ({"p3"}, COMMITTED | {"p0", "p2", "p3"})

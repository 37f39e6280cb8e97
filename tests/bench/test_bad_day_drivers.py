"""The drivers of bad days still run, and what they judge besides times holds: no acknowledgement is a lie, nothing is lost."""
import json

import pytest

from bench.load import fence, slow_disk


@pytest.fixture
def rows_of(tmp_path, capsys):
    def run(driver):
        driver.main(["--dir", str(tmp_path / "here"), "--quick", "--out", str(tmp_path / "out.json")])
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert json.loads((tmp_path / "out.json").read_text())["rows"] == rows
        assert not list((tmp_path / "here").iterdir())
        return rows

    return run


def test_every_waiter_learns_of_the_failed_sync(rows_of):
    rows = rows_of(fence)
    assert [r["backend"] for r in rows] == list(fence.BACKENDS)
    ran = [r for r in rows if "missing" not in r]
    assert len(ran) >= 3 and all(r["other"] == [] and r["last_ms"] >= r["first_ms"] > 0 for r in ran)


@pytest.mark.slow
def test_a_slow_disk_is_back_pressure_and_nothing_is_lost(rows_of):
    rows = rows_of(slow_disk)
    ran = [r for r in rows if "missing" not in r]
    assert len(ran) >= 3
    for r in ran:
        assert r["wrong"] == [] and r["errno"] == 0 and r["acknowledged"] > 0, r
        assert r["peak_anonymous_mib"] < 64, r
        assert set(r["refused"]) <= {"PoolExhausted", "OsPageCacheBusy", "CreateMappedFileFailed", "FLUSH_DISK_TIMEOUT"}, r


def test_a_loss_is_seen(tmp_path):
    with slow_disk.MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20, index_enabled=False) as store:
        for i in (0, 2, 1):
            store.put("Slow", i.to_bytes(8, "big"), queue_id=0)
        producer = slow_disk.Producer(store, 0, 1.0, slow_disk.threading.Event())
    producer.kept = [0, 1, 2, 3]
    assert slow_disk.lost(tmp_path / "s", [producer]) == [
        "queue 0: 1 acknowledged messages are missing, the first is 3", "queue 0: out of order"]

"""What a store holds stays what it is while files come and go; and the two drivers that show it at full rate."""
import argparse
import contextlib
import json
import threading

import pytest

from bench.load import cleaning, soak
from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 20 * 50, "index_slots": 100, "index_entries_max": 200,
         "consumequeue_fd_max": 16, "clean_queue_pace_ms": 0}
ROUNDS = 40
pytestmark = pytest.mark.untraced       # a trace grows from round to round


@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_nothing_grows_from_round_to_round(tmp_path, write_path):
    """Each round fills some files, reads all of it, and deletes what is old: no clock decides anything."""
    samples = []
    with MessageStore.open(tmp_path / "s", write_path=write_path, **SMALL) as s:
        for number in range(ROUNDS):
            for i in range(300):
                s.put(f"T{i % 3}", bytes(500), queue_id=i % 4, keys=f"k{number}-{i}")
            s.flush()
            assert s.wait_dispatched(60)
            assert sum(len(m.body) for m in s.scan()) >= 300 * 500
            assert len(s.query_key("T1", f"k{number}-1")) == 1
            s.offsets.commit("G", "T1", 1, number)
            s.offsets.flush()
            s.clean(0, pace_ms=0)
            samples.append(soak.held(s.path) | {"files": 0})        # the control thread deletes queue files, in its time
        assert s.min_log_offset > ROUNDS * 2 * (1 << 16)
        files = s.stats()["log_files"]
    assert files <= 3
    assert soak.grown(samples) == {}


def test_growth_is_seen():
    flat = [{"private_mib": 5.0 + i % 3, "descriptors": 20 + i % 2, "mappings": 3, "threads": 4, "files": 20 + i % 9}
            for i in range(90)]
    assert soak.grown(flat) == {}
    for name, step in (("private_mib", 0.4), ("descriptors", 0.1), ("mappings", 0.1), ("threads", 0.05),
                       ("files", 3)):
        assert list(soak.grown([s | {name: s[name] + i * step} for i, s in enumerate(flat)])) == [name]


def test_a_leak_of_descriptors_is_seen(tmp_path):
    samples = []
    with contextlib.ExitStack() as leaks:
        for _ in range(30):
            leaks.enter_context(open(tmp_path / "leak", "w"))
            samples.append(soak.held(tmp_path))
    assert "descriptors" in soak.grown(samples)


def test_native_threads_and_a_store_s_files_count(tmp_path):
    before = soak.held(tmp_path)
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put("T", b"x", wait=True)
        during = soak.held(tmp_path)
        assert during["threads"] > threading.active_count() and during["files"] > before["files"] == 0
    assert soak.held(tmp_path)["threads"] == before["threads"]


def test_what_is_wrong_is_said():
    good = {"grown": {}, "left": {}, "consumed": 7, "deleted_gib": 0.5}
    assert soak.wrong(good) == []
    assert soak.wrong(good | {"grown": {"files": (10, 99)}}) == ["files grew from 10 to 99"]
    assert soak.wrong(good | {"left": {"threads": [1, 2]}}) == ["threads: 2 after close(), 1 before the store"]
    assert len(soak.wrong(good | {"consumed": 0, "deleted_gib": 0.0})) == 2


def test_the_soak_runs(tmp_path, capsys):
    soak.main(["--dir", str(tmp_path), "--quick", "--out", str(tmp_path / "soak.json")])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kept = (tmp_path / "soak.json").read_text()
    assert json.loads(kept)["rows"] == rows and str(tmp_path) not in kept
    assert [row["write_path"] for row in rows] == ["mmap", "pool"]
    for row in rows:
        assert row["puts_per_s"] > 0 and row["consumed"] > 0 and row["deleted_gib"] > 0 and row["left"] == {}
    assert [path.name for path in tmp_path.iterdir()] == ["soak.json"]


def test_a_machine_that_is_slow_to_look_looks_often_enough(tmp_path):
    args = argparse.Namespace(quick=False, seconds=0.0, segment_mib=1.0, producers=1, body=100)
    assert soak.run(args, tmp_path / "s", "mmap")["held"]["threads"][0] > 1


def test_the_cleaning_driver_runs(tmp_path, capsys):
    cleaning.main(["--dir", str(tmp_path), "--quick", "--out", str(tmp_path / "cleaning.json")])
    figures = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "cleaning.json").read_text())["rows"] == [figures]
    assert figures["cleaning"][0]["deleted_gib"] > 0 and figures["without"][0]["deleted_gib"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["cleaning.json"]

"""Light queues that nobody uses: a row each, no descriptor, and every answer as before."""
import gc
import json
import os
import threading

import pytest

from rmq_store import MessageStore, verify
from rmq_store.bench.children import in_child
from rmq_store.cli.main import main
from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.queues.consumequeue.loader import load_queues

MANY = 600
IDLE = 128              # keep their state for a while (_state.pxd)
OPTIONS = {"segment_size_bytes": 1 << 22, "consumequeue_file_size_bytes": 4000, "index_enabled": False, "enable_lmq": True,
           "enable_multi_dispatch": True}


def name(n):
    return b"%%LMQ%%q%05d" % n


@pytest.fixture
def table_at(memory_disk):
    (memory_disk / ".alloc").mkdir()

    def make(*, load=True, **options):
        table = QueueTableOwner(str(memory_disk / "consumequeue"), tmp_dir=str(memory_disk / ".alloc"),
                                **{"file_size": 200} | options)
        if load:
            load_queues(table)
        return table

    return make


def test_what_is_synced_and_unused_is_a_row(table_at):
    table = table_at()
    for n in range(MANY):
        table.put(name(n), 0, n * 100, 100, n, 1, 0)
    table.publish()
    assert table.light_in_use == MANY           # the next sync has to look at each
    table.sync()
    assert table.light_in_use <= IDLE and table.open_files <= IDLE
    for n in range(0, MANY, 3):                 # and a queue again, to read and to write
        assert table.read(name(n), 0, 0, 9) == [(n * 100, 100, n)] and len(table.files(name(n), 0)) == 1
        table.put(name(n), 0, MANY * 100 + n, 1, 7, 1, 1)
    table.publish()
    table.sync()
    assert table.light_in_use <= IDLE and table.open_files <= IDLE
    for n in range(MANY):
        more = n % 3 == 0
        assert table.offsets(name(n), 0)[:2] == (0, 1 + more)
        assert len(table.read(name(n), 0, 0, 9)) == 1 + more
        assert table.max_physical_offset(name(n), 0) == (MANY * 100 + n + 1 if more else n * 100 + 100)
    assert table.light_in_use <= IDLE


def test_after_a_load_and_in_a_table_that_only_reads(table_at):
    table = table_at()
    for n in range(MANY):
        for i in range(n % 25):                 # up to three files
            table.put(name(n), 0, n * 100 + i, 1, i, 1, i)
    table.publish()
    table.sync()
    for options in ({}, {"readonly": True}):
        again = table_at(**options)
        assert again.light_in_use <= IDLE
        again.recover(False)
        assert again.light_in_use <= IDLE and again.open_files <= 3 * IDLE
        assert len(again.queues()) == MANY - MANY // 25
        for n in (n for n in range(1, MANY, 7) if n % 25 > 0):      # of the others nothing is on the disk
            low = 10 if n % 25 > 10 else 0
            assert [u[0] for u in again.read(name(n), 0, low, 25)] == [n * 100 + i for i in range(low, min(n % 25, low + 10))]
            assert again.offsets(name(n), 0)[:2] == (0, n % 25)
    assert again.light_in_use <= IDLE


def test_cut_moved_and_destroyed_at_rest(table_at):
    table = table_at()
    for n in range(MANY):
        for i in range(3):
            table.put(name(n), 0, i * 100 * MANY + n * 100, 100, i, 1, i)
    table.publish()
    table.sync()
    table.correct_min(60_000)
    assert all(table.offsets(name(n), 0)[:2] == (1, 3) for n in range(MANY))
    table.truncate(120_000)
    assert all(table.offsets(name(n), 0) == (1, 2, 2) for n in range(MANY))
    table.destroy(name(5), 0)
    assert table.offsets(name(5), 0) == (0, 0, 0) and table.read(name(5), 0, 0, 9) == []
    table.put(name(5), 0, 500_000, 100, 1, 1, 0)
    table.publish()
    table.sync()
    assert table.read(name(5), 0, 0, 9) == [(500_000, 100, 1)]
    assert table_at().recover(False) == 500_100


def test_a_second_queue_of_a_light_name_is_found(table_at):
    """RocketMQ makes queue 0 alone; what lies on a disk may have others."""
    table = table_at()
    for topic, ids in ((name(1), (0, 5)), (name(2), (5, 0)), (name(3), (7,)), (b"T", (1, 0))):
        for i in ids:
            table.put(topic, i, 10, 5, 1, 1, 0)
    for n in range(100, 400):                   # the directory grows twice
        table.put(name(n), 0, 10, 5, 1, 1, 0)
    table.publish()
    for topic, ids in ((name(1), (0, 5)), (name(2), (5, 0)), (name(3), (7,)), (b"T", (1, 0))):
        assert all(table.read(topic, i, 0, 1) == [(10, 5, 1)] for i in ids)
    assert len(table.queues()) == 307


def test_threads_that_read_while_states_come_and_go(table_at):
    table = table_at(fd_max=8)
    for n in range(MANY):
        table.put(name(n), 0, n * 100, 100, n, 1, 0)
    table.publish()
    table.sync()
    wrong, stop = [], threading.Event()

    def read(step):
        n = step
        while not stop.is_set():
            n = (n + step) % MANY
            if table.read(name(n), 0, 0, 1) != [(n * 100, 100, n)]:
                wrong.append(n)

    threads = [threading.Thread(target=read, args=(step,)) for step in (1, 7, 131)]
    for thread in threads:
        thread.start()
    for i in range(1, 4):
        for n in range(MANY):
            table.put(name(n), 0, i * 100 * MANY + n * 100, 100, n, 1, i)
            if n % 50 == 0:
                table.publish()
        table.publish()
        table.sync()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and table.light_in_use <= IDLE
    assert all(len(table.read(name(n), 0, 0, 9)) == 4 for n in range(MANY))


def test_a_store_with_many_light_queues(memory_disk):
    with MessageStore.open(memory_disk, **OPTIONS) as s:
        for n in range(0, MANY, 50):
            s.put("devices", b"%d" % n, light_queues=[f"lamp-{k}" for k in range(n, n + 50)])
        s.wait_dispatched()
    with MessageStore.open(memory_disk, **OPTIONS) as s:
        descriptors = len(os.listdir("/proc/self/fd"))
        for n in range(0, MANY, 9):
            assert [bytes(m.body) for m in s.get(f"%LMQ%lamp-{n}", 0, 0)] == [b"%d" % (n - n % 50)]
        assert len(os.listdir("/proc/self/fd")) <= descriptors + IDLE and len(s.topics()) == MANY + 1
        assert s.offset_by_time("%LMQ%lamp-7", 0, 0) == 0
        s.put("devices", b"more", light_queues=["lamp-3"])
        s.wait_dispatched()
        assert [bytes(m.body) for m in s.get("%LMQ%lamp-3", 0, 0)] == [b"0", b"more"]
    assert list(verify(memory_disk, **OPTIONS)) == []


def memory():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def known(base, few, many):
    """A table is told of `few` queues with one file each, then of more: what one of these takes. Nothing is on the disk."""
    table = QueueTableOwner(base + "/consumequeue", tmp_dir=base)
    begun = 0
    for n in range(many):
        if n == few:
            begun = memory()
        table.add_queue(name(n), 0, (0,))
    return {"bytes": (memory() - begun) / (many - few), "in_use": table.light_in_use, "open_files": table.open_files}


def test_a_queue_at_rest_takes_less_than_200_bytes(tmp_path):
    found = in_child(known, str(tmp_path), 4_000, 24_000)       # whose heap has no holes yet
    assert 128 < found["bytes"] <= 200, found
    assert found["in_use"] <= IDLE and found["open_files"] == 0


@pytest.mark.slow
def test_100000_light_queues_at_rest(tmp_path, capsys):
    from bench.load import light_queues  # not in the child above

    out = tmp_path / "out.json"
    light_queues.main(["--dir", str(tmp_path), "--out", str(out)])
    row = json.loads(capsys.readouterr().out)
    assert row["queues"] == 100_000 and json.loads(out.read_text())["rows"] == [row]
    assert row["opened"]["bytes"] <= 200 and row["made"]["bytes"] <= 200, row
    assert row["opened"]["descriptors"] <= IDLE and row["made"]["descriptors"] <= IDLE, row


def test_stat_sums_light_queues_up(tmp_path, capsys):
    path = str(tmp_path / "s")
    with MessageStore.open(path, **OPTIONS) as store:
        for n in range(5):
            store.put("T", b"x", light_queues=[f"%LMQ%a{n}", "%LMQ%all"])
    assert main(["stat", path]) == 0
    said = capsys.readouterr().out
    assert "light queues: 6, with 10 messages; --light-queues lists them" in said and "%LMQ%" not in said
    assert main(["stat", path, "--light-queues"]) == 0
    said = capsys.readouterr().out
    assert "light queues: " not in said and said.count("%LMQ%a") == 6
    assert main(["stat", path, "-t", "%LMQ%all"]) == 0 and "%LMQ%all" in capsys.readouterr().out
    assert main(["stat", path, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row for row in rows if row["kind"] == "light_queues"] == [{"kind": "light_queues", "queues": 6, "messages": 10}]
    assert [row["topic"] for row in rows if row["kind"] == "queue"] == ["T"]

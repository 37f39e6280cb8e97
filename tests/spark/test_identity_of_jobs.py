"""Jobs that plan in one place, read in others, and put the result in place: all of them see one log, or the job is refused."""
import json
import os
import shutil
import sys

import pytest

from rmq_store import MessageStore
from rmq_store.errors import CorruptionError, RmqStoreError, StoreStateError
from tests.spark.test_positions import SMALL, Query, fill
from tests.spark.test_recovered import crashed, spoil

pytest.importorskip("pyspark", reason="pyspark is not installed")


from rmq_store.spark.jobs import queues, rebuild_index, rebuild_queues, run
from rmq_store.spark.jobs.export import export

pytestmark = pytest.mark.usefixtures("tasks")
ANOTHER = "another store is at this path"
audits = sys.modules["rmq_store.spark.jobs.audit"]        # the package has the function under this name
REBUILDS = {"queues": lambda root, **more: rebuild_queues(None, str(root), split_size=5000, **more),
            "index": lambda root, **more: rebuild_index(None, str(root), split_size=5000, **more)}


@pytest.fixture
def root(tmp_path):
    """A store, and beside it another one whose records lie at the same places, and an older copy of its newest file."""
    for name in ("s", "other"):
        fill(tmp_path / name, 0, 400, keys="k")
    return tmp_path / "s"


def swap(root):
    shutil.rmtree(root)
    shutil.copytree(root.with_name("other"), root)


def newest(root):
    return max(path for path in (root / "commitlog").iterdir() if path.read_bytes()[:8].strip(b"\0"))


def lose_the_newest(root):
    last = newest(root)
    for path in (root / "commitlog").iterdir():
        if path.name >= last.name:
            path.unlink()


def be_behind(root):
    data = newest(root).read_bytes()
    newest(root).write_bytes(data[:300].ljust(len(data), b"\0"))


def at(monkeypatch, number, change):
    """Makes the change before the job's tasks run the `number`-th time, or behind the last time."""
    collect, runs = run.collect, []

    def collected(spark, job, arguments):
        runs.append(job)
        if len(runs) == number:
            change()
        rows = collect(spark, job, arguments)
        if number == 0 and (job == "rebuild_queues" or len(runs) == 2):
            change()
        return rows

    monkeypatch.setattr(run, "collect", collected)


@pytest.mark.untraced("the test puts another image in place of the store")
@pytest.mark.parametrize("what", [swap, lose_the_newest, be_behind])
@pytest.mark.parametrize(("job", "when"), [("queues", 1), ("index", 1), ("index", 2)])
def test_a_worker_that_sees_another_log_than_the_planner(root, monkeypatch, job, when, what):
    at(monkeypatch, when, lambda: what(root))
    with pytest.raises((RmqStoreError, FileNotFoundError), match="every node"):
        REBUILDS[job](root, install=True)
    assert not os.listdir(root / ".spark" / "rebuild") if what is not swap else not (root / ".spark").exists()


@pytest.mark.untraced("the test puts another image in place of the store")
@pytest.mark.parametrize("job", ["queues", "index"])
@pytest.mark.parametrize("when", ["tasks-done", "under-the-lock"])
def test_nothing_is_put_into_another_store(root, monkeypatch, job, when):
    """One that takes the place of the store that was read, as late as can be."""
    if when == "tasks-done":
        def change():
            work = root / ".spark"
            shutil.move(work, root.with_name("work"))
            swap(root)
            shutil.move(root.with_name("work"), work)

        at(monkeypatch, 0, change)
    else:
        acquire = queues.lockfile.acquire

        def acquired(files, path, *more):
            shutil.rmtree(root / "commitlog")
            shutil.copytree(root.with_name("other") / "commitlog", root / "commitlog")
            return acquire(files, path, *more)

        monkeypatch.setattr(queues.lockfile, "acquire", acquired)
    before = os.listdir((root.with_name("other") if when == "tasks-done" else root) / "index")
    with pytest.raises(StoreStateError, match=f"{ANOTHER} now.*run the job again"):
        REBUILDS[job](root, install=True)
    assert os.listdir(root / "index") == before and not list((root / ".spark").glob("replaced-*"))


@pytest.mark.untraced("the test puts another image in place of the store")
@pytest.mark.parametrize("what", [swap, lose_the_newest, be_behind])
def test_an_audit_of_another_log_than_was_planned(root, what):
    arguments = {"read": {"path": str(root), "splitSize": "5000", "verify": "crc"}, "crossCheck": True, "store": {}}
    parts = json.loads(json.dumps(audits.plan(arguments)))
    assert {part[0] for part in parts} == {"log", "cross"} and len(parts) > 5
    for part in parts:
        list(audits.work(part, arguments))
    what(root)
    kinds = {"log": 0, "cross": 0}
    for part in parts:
        try:
            list(audits.work(part, arguments))
        except (StoreStateError, CorruptionError, FileNotFoundError) as error:
            assert "every node" in str(error)
            kinds[part[0]] += 1
    crossing = sum(part[0] == "cross" for part in parts)
    assert kinds == {"log": len(parts) - crossing if what is swap else kinds["log"], "cross": crossing} and kinds["log"]


def test_what_cleaning_deletes_meanwhile_is_no_other_log(root, monkeypatch):
    """As long as no part of the job is about it."""
    def clean():
        with MessageStore.open(root) as store:
            assert store.clean(0, pace_ms=0).log_files > 1

    at(monkeypatch, 0, clean)
    assert REBUILDS["queues"](root).entries == 400


@pytest.mark.untraced("the test makes a crashed image by hand")
def test_a_rebuild_of_a_crashed_store_has_what_recovery_keeps(tmp_path):
    root = tmp_path / "s"
    puts = crashed(root)
    (root / "checkpoint").unlink()
    spoil(root, puts[-12])
    assert REBUILDS["queues"](root, install=True).entries == len(puts) - 12
    with MessageStore.open(root, **SMALL) as store:
        assert store.max_log_offset == puts[-12].offset
        assert [m.offset for m in store.scan("T", 0)] == [put.offset for put in puts[:-12]]


# ---- a record that is torn

@pytest.mark.untraced("the test makes a crashed image by hand")
def test_a_torn_head_identifies_no_log(tmp_path):
    """Recovery cuts it, and another record takes its place: the log is the same."""
    root = tmp_path / "s"
    puts = crashed(root)
    (root / "checkpoint").unlink()
    spoil(root, puts[0])
    query = Query(root, columns="physicalOffset")
    assert query.to_end() == []
    query.at = json.loads(json.dumps(query.at))
    assert query.at[""]["brokers"]["s"] == {"head": None, "last": None}
    assert export(None, str(root), str(tmp_path / "x")).rows == 0
    with MessageStore.open(root, **SMALL) as store:
        more = [store.put("T", b"new", queue_id=0).offset for _ in range(5)]
    query.restart(root)
    assert [row[0] for row in query.to_end()] == more and export(None, str(root), str(tmp_path / "x")).rows == 5


@pytest.mark.untraced("the test writes half a record by hand")
@pytest.mark.parametrize("view", ["queues", "files", "checkpoint", "index", "consumequeue"])
def test_a_head_that_is_still_written_identifies_no_store_for_a_view(tmp_path, view):
    from rmq_store.spark.options import ReadOptions
    from rmq_store.spark.reader import partitions_of, rows_of
    from rmq_store.spark.schema import columns_of

    root = tmp_path / "s"
    (put,) = fill(root, 0, 1)
    file = newest(root)
    whole = file.read_bytes()
    file.write_bytes(whole[:put.size - 30].ljust(len(whole), b"\0"))
    options = ReadOptions.parse({"path": str(root), "view": view})
    parts = partitions_of(options)
    file.write_bytes(whole)
    for part in parts:
        list(rows_of(part, options, columns_of(options)))

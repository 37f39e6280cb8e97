"""Attempts that go on, or begin, when their job is over (speculation, executors that the driver lost): nothing of them stays.

Without a session: tasks are run once more by hand, and commits broken. Spark's own speculation: test_speculation.py.
"""
import os
import uuid

import pytest

from rmq_store import MessageStore
from rmq_store.spark import leftovers, staging
from tests.spark.staging_of import SMALL, batch, expected


def everything(root):
    """{path: bytes} of all files, and the directories, under `root`."""
    found = {}
    for place, directories, names in os.walk(root):
        found |= {os.path.join(place, name): None for name in directories}
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.join(place, name)] = file.read()
    return found


def bodies(root):
    with MessageStore.open(root, readonly=True) as store:
        return [bytes(m.body) for m in store.scan()]


def test_a_directory_goes_under_its_writer(tmp_path, monkeypatch):
    remove = leftovers.shutil.rmtree

    def beside_a_writer(path, **more):
        with pytest.raises(FileNotFoundError):      # while its files are removed nothing new can come in
            open(place / "new", "wb").close()
        remove(path, **more)

    monkeypatch.setattr(leftovers.shutil, "rmtree", beside_a_writer)
    place = tmp_path / ("name-" + uuid.uuid4().hex)
    place.mkdir()
    with open(place / "open", "wb") as file:
        leftovers.drop(str(place))
        file.write(b"still possible")
    with pytest.raises(FileNotFoundError):
        open(place / "new", "wb").close()
    assert os.listdir(tmp_path) == []
    leftovers.drop(str(place))          # gone already


def test_a_run_leaves_nothing_but_what_was_moved_out(tmp_path):
    (tmp_path / ("run-" + uuid.uuid4().hex) / "of one that died").mkdir(parents=True)
    (tmp_path / "run-of-somebody").mkdir()
    with pytest.raises(KeyError), leftovers.work_directory(str(tmp_path), "run") as work:
        os.mkdir(os.path.join(work, "kept"))
        os.mkdir(os.path.join(work, "not"))
        assert sorted(os.listdir(tmp_path)) == sorted(["run-of-somebody", os.path.basename(work)])
        os.rename(os.path.join(work, "kept"), tmp_path / "kept")
        raise KeyError
    assert sorted(os.listdir(tmp_path)) == ["kept", "run-of-somebody"]
    with leftovers.work_directory(str(tmp_path), "run") as work:
        os.rename(work, tmp_path / "whole")
    assert sorted(os.listdir(tmp_path)) == ["kept", "run-of-somebody", "whole"]


@pytest.fixture
def again(tasks, monkeypatch):
    """Runs jobs as `tasks` does; the list gets a call for each that runs all of its tasks once more."""
    from rmq_store.spark.jobs import run

    inner, calls = run.run_job, []

    def kept(spark, job, arguments):
        rows = inner(spark, job, arguments)
        module = run.job_module(job)
        calls.append(lambda: [list(module.work(part, arguments)) for part in module.plan(arguments)])
        return rows

    monkeypatch.setattr(run, "run_job", kept)
    return calls


@pytest.mark.parametrize("install", [False, True])
@pytest.mark.parametrize("job", ["rebuild_queues", "rebuild_index"])
def test_a_late_task_of_a_rebuild_writes_nothing(again, own_store, job, install):
    from rmq_store.spark import jobs

    getattr(jobs, job)(None, str(own_store), install, split_size=20_000)
    before = everything(own_store)
    made = "consumequeue" if job == "rebuild_queues" else "index"
    assert os.listdir(own_store / ".spark" / "rebuild") == ([] if install else [made])
    with pytest.raises(FileNotFoundError):
        again[-1]()
    assert everything(own_store) == before


def test_a_late_task_of_an_export_writes_nothing(again, own_store, tmp_path):
    from rmq_store.spark import jobs

    out = tmp_path / "out"
    made = jobs.export(None, str(own_store), str(out), split_size=20_000)
    before = everything(out)
    assert len(before) == made.files + 1 == jobs.verify_export(str(out)) + 1
    with pytest.raises(FileNotFoundError):
        again[-1]()
    assert everything(out) == before


def test_who_comes_to_a_version_that_is_done_is_sent_away(tmp_path):
    root = str(tmp_path / "s")
    assert staging.enter(root, "job", "app", 0)
    file = staging.StageFile(root, "job", 0)
    file.add(batch(2), 2)
    staging.commit_staged(root, "app", 0, [file.finish()], SMALL, "job")
    assert not staging.enter(root, "job", "app", 0) and staging.enter(root, "next", "app", 1)
    assert sorted(os.listdir(tmp_path / "s" / ".spark")) == ["journal", "next"]
    with pytest.raises(FileNotFoundError):          # it came in time and was slow
        staging.StageFile(root, "job", 1)
    assert sorted(os.listdir(tmp_path / "s" / ".spark")) == ["journal", "next"]


@pytest.fixture
def rows():
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pa.RecordBatch.from_pydict({"body": pa.array([b"body 0", b"body 1"], pa.binary())})


def writer_of(root, **options):
    from rmq_store.spark.writer import StoreWriter, WriteOptions

    return StoreWriter(WriteOptions.parse({"path": str(root), "topic": "T", "txnAppId": "a", "txnVersion": "1", **options,
                                           **{f"store.{name}": str(value) for name, value in SMALL.items()}}))


def test_two_attempts_stage_and_one_is_told(rows, tmp_path):
    writer = writer_of(tmp_path / "s")
    first, late = writer.write(iter([rows])), writer.write(iter([rows]))
    assert late.staged.path != first.staged.path
    writer.commit([first])
    assert bodies(tmp_path / "s") == expected(2)
    for message in (late, writer.write(iter([rows]))):      # ended, or began, after the commit
        writer.commit([message])
        assert bodies(tmp_path / "s") == expected(2) and os.listdir(tmp_path / "s" / ".spark") == ["journal"]


def test_two_attempts_build_a_store_and_one_is_told(rows, tmp_path):
    writer = writer_of(tmp_path / "s", shards="1")
    first, late = writer.write(iter([rows])), writer.write(iter([rows]))
    assert late.shard.path != first.shard.path
    writer.commit([first])
    for message in (late, writer.write(iter([rows]))):
        writer.commit([message])
        assert sorted(n for n in os.listdir(tmp_path / "s") if n != ".spark") == ["shard-00000"]
        assert bodies(tmp_path / "s" / "shard-00000") == expected(2)
        assert not [n for n in os.listdir(tmp_path / "s" / ".spark") if n not in ("journal", "lock")]


def test_an_abort_leaves_what_a_decided_commit_needs(rows, tmp_path, monkeypatch):
    """Spark aborts a write whose commit failed; behind the journal's "pending" the next commit completes it."""
    def full(store, data, path):
        raise OSError(28, "No space left on device")

    writer = writer_of(tmp_path / "s")
    told = [writer.write(iter([rows]))]
    monkeypatch.setattr(staging, "append_staged", full)
    with pytest.raises(OSError, match="No space"):
        writer.commit(told)
    writer.abort(told)
    monkeypatch.undo()
    staging.commit_staged(str(tmp_path / "s"), "other", 0, [], SMALL)
    assert bodies(tmp_path / "s") == expected(2)
    assert os.listdir(tmp_path / "s" / ".spark") == ["journal"]


def test_an_abort_removes_what_was_staged(rows, tmp_path):
    writer = writer_of(tmp_path / "s")
    writer.abort([writer.write(iter([rows])), None])
    assert os.listdir(tmp_path / "s" / ".spark") == []


class Context:
    """What Spark tells a task of a stream."""

    def __init__(self, **properties):
        self.properties = properties

    def partitionId(self):
        return 0

    def getLocalProperty(self, name):
        return self.properties.get(name.replace(".", "_"))


@pytest.mark.parametrize("told", [True, False])
def test_attempts_at_a_batch_of_a_stream_share_a_directory(rows, tmp_path, monkeypatch, told):
    """So the commit sweeps those too that it was not told of, also after a restart. Without a batch's name each is alone."""
    from rmq_store.spark import writer as module

    properties = {"sql_streaming_queryId": "q", "streaming_sql_batchId": "3"} if told else {}
    monkeypatch.setattr(module.TaskContext, "get", classmethod(lambda cls: Context(**properties)))
    options = module.WriteOptions.parse({"path": str(tmp_path / "s"), "topic": "T", "txnAppId": "a",
                                         **{f"store.{name}": str(value) for name, value in SMALL.items()}}, stream=True)
    messages = [module.StoreStreamWriter(options).write(iter([rows])) for _ in range(3)]
    assert len({m.job for m in messages}) == (1 if told else 3) and len({m.staged.path for m in messages}) == 3
    module.StoreStreamWriter(options).commit(messages[:1], 3)
    assert bodies(tmp_path / "s") == expected(2)
    late = module.StoreStreamWriter(options).write(iter([rows]))
    assert (late.staged is None) == told
    assert len(os.listdir(tmp_path / "s" / ".spark")) == (1 if told else 4)
    module.StoreStreamWriter(options).commit([late], 3)
    assert bodies(tmp_path / "s") == expected(2)

"""Whose batch it is: batches of a stream are numbered by their query, so the query's id stands beside the number. Another query
of the same application is refused by name, and so is a batch that comes again with other rows. Nothing is taken for a repeat
that may be something else."""
import json
import os
import uuid
from pathlib import Path

import pytest

from rmq_store.errors import ConfigError, StoreStateError
from rmq_store.spark import staging
from tests.spark.staging_of import SMALL, bodies, expected, staged

ONE, TWO = "11111111-aaaa", "22222222-bbbb"


def commit(root, version, query, rows, first=0):
    job = uuid.uuid4().hex
    parts = staged(root, rows, job=job, first=first)
    try:
        return staging.commit_staged(str(root), "copy", version, parts, SMALL, job, query=query, rows=rows)
    finally:
        staging.abandon(str(root), job)


def test_batches_of_one_query_are_stored_once_each(tmp_path):
    root = tmp_path / "s"
    commit(root, 0, ONE, 5)
    assert commit(root, 1, ONE, 3, first=5).records == 3
    assert commit(root, 1, ONE, 3, first=5).repeated
    assert staging.commit_staged(str(root), "copy", 1, [], SMALL, None, query=ONE, rows=3).repeated     # all tasks came late
    assert bodies(root) == expected(8)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_another_query_of_the_same_application_is_refused_by_name(tmp_path, version):
    root = tmp_path / "s"
    for batch in (0, 1):
        commit(root, batch, ONE, 5, first=5 * batch)
    with pytest.raises(ConfigError, match=f"txnAppId is 'copy'.*versions of query {ONE}.*version {version} of query {TWO}"):
        commit(root, version, TWO, 7, first=100)
    assert bodies(root) == expected(10) and os.listdir(root / ".spark") == ["journal"]
    assert commit(root, 2, ONE, 2, first=10).records == 2


class Crash(BaseException):
    pass


def test_another_query_is_refused_while_a_batch_of_the_first_is_pending(tmp_path, monkeypatch):
    root = tmp_path / "s"

    def die(name):
        if name == "pending":
            raise Crash

    monkeypatch.setattr(staging, "_step", die)
    with pytest.raises(Crash):
        commit(root, 0, ONE, 5)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=f"query {ONE}"):
        commit(root, 0, TWO, 7)
    assert commit(root, 0, ONE, 5).repeated and bodies(root) == expected(5)


def test_the_batch_before_one_that_is_pending_is_no_repeat(tmp_path, monkeypatch):
    """What its journal knows of rows is about the later one by then."""
    root = tmp_path / "s"
    commit(root, 0, ONE, 5)
    with monkeypatch.context() as patch:
        patch.setattr(staging, "_step", lambda name: (_ for _ in ()).throw(Crash) if name == "pending" else None)
        with pytest.raises(Crash):
            commit(root, 1, ONE, 5, first=5)
    with pytest.raises(StoreStateError, match=r"has batch 1 .* and Spark writes batch 0 again"):
        commit(root, 0, ONE, 6)
    assert commit(root, 1, ONE, 5).repeated and bodies(root) == expected(10)


@pytest.mark.parametrize(("stored", "given"), [(ONE, None), (None, ONE)])
def test_a_stream_and_a_batch_write_take_nothing_of_each_other_for_a_repeat(tmp_path, stored, given):
    root = tmp_path / "s"
    commit(root, 3, stored, 5)
    with pytest.raises(ConfigError, match="writes of no streaming query"):
        commit(root, 3, given, 5)
    assert bodies(root) == expected(5)


@pytest.mark.parametrize(("version", "rows", "words"), [
    (1, 5, "batch 2 of query .*batch 1 again: the checkpoint is older than the store"),
    (2, 6, "batch 2 of query .* with 5 rows, and Spark writes it again with 6")])
def test_a_batch_that_may_have_other_rows_is_no_repeat(tmp_path, version, rows, words):
    """The checkpoint was put back from a copy: what was not committed then is planned anew."""
    root = tmp_path / "s"
    for batch in range(3):
        commit(root, batch, ONE, 5, first=5 * batch)
    with pytest.raises(StoreStateError, match=words):
        commit(root, version, ONE, rows)
    assert bodies(root) == expected(15)


def test_a_journal_of_an_older_release_is_gone_on_with(tmp_path):
    root = tmp_path / "s"
    commit(root, 4, ONE, 5)
    path = Path(staging.journal_of(str(root), "copy"))
    old = json.dumps({"app": "copy", "done": 4, "begin": 0, "end": 500})
    path.write_text(old)
    assert commit(root, 4, TWO, 9).repeated         # the last one, which a restart may bring again
    with pytest.raises(StoreStateError, match="older than the store"):
        commit(root, 3, TWO, 9)
    assert commit(root, 5, TWO, 2, first=5).records == 2 and bodies(root) == expected(7)
    with pytest.raises(ConfigError, match="txnAppId"):
        commit(root, 6, ONE, 1)


# ---- how the writers tell

class Context:
    """What Spark tells a task."""

    def __init__(self, query=None, batch=None):
        self.properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": None if batch is None else str(batch)}

    def partitionId(self):
        return 0

    def getLocalProperty(self, name):
        return self.properties[name]


@pytest.fixture
def writers(tmp_path, monkeypatch):
    """stream(query, batch, rows) and foreach(query, batch, rows, version=batch): write and commit as Spark has them done."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from rmq_store.spark import writer as module

    given = {"path": str(tmp_path / "s"), "topic": "T", "txnAppId": "copy", **{f"store.{n}": str(v) for n, v in SMALL.items()}}
    count = iter(range(1000))

    def batches(rows):
        values = [b"body %d" % next(count) for _ in range(rows)]
        return iter([pa.RecordBatch.from_pydict({"body": pa.array(values, pa.binary())})])

    def told(context):
        monkeypatch.setattr(module.TaskContext, "get", classmethod(lambda cls: context))

    def stream(query, batch, rows, tasks=1):
        told(Context(query, batch))
        options = module.WriteOptions.parse(given, stream=True)
        messages = [module.StoreStreamWriter(options).write(batches(rows)) for _ in range(tasks)]
        told(None)
        module.StoreStreamWriter(options).commit(messages, batch)

    def foreach(query, batch, rows, version=None):
        told(Context(query, batch))
        own = {"txnVersion": str(batch if version is None else version)}
        writer = module.StoreWriter(module.WriteOptions.parse(given | own))
        writer.commit([writer.write(batches(rows))])

    return stream, foreach


def test_a_new_checkpoint_of_a_stream_is_refused(writers, tmp_path):
    stream, _ = writers
    stream(ONE, 0, 4)
    stream(ONE, 0, 4)       # a restart
    stream(ONE, 1, 2, tasks=0)
    stream(ONE, 1, 3)
    assert len(bodies(tmp_path / "s")) == 7
    for batch in (0, 1, 2):
        with pytest.raises(ConfigError, match=f"query {ONE}.*query {TWO}"):
            stream(TWO, batch, 4)
    with pytest.raises(StoreStateError, match="with 3 rows, and Spark writes it again with 2"):
        stream(ONE, 1, 2)
    assert len(bodies(tmp_path / "s")) == 7


def test_a_new_checkpoint_of_foreach_batch_is_refused_where_it_would_be_taken_for_a_repeat(writers, tmp_path):
    _, foreach = writers
    foreach(ONE, 0, 4)
    foreach(ONE, 0, 4)
    foreach(ONE, 1, 3)
    with pytest.raises(ConfigError, match=f"query {ONE}.*query {TWO}"):
        foreach(TWO, 0, 5)
    with pytest.raises(StoreStateError, match="with 3 rows, and Spark writes it again with 2"):
        foreach(ONE, 1, 2)      # a second write in one batch under one application
    assert len(bodies(tmp_path / "s")) == 7


def test_versions_of_the_users_own_in_foreach_batch_are_no_numbers_of_batches(writers, tmp_path):
    _, foreach = writers
    foreach(ONE, 0, 4, version=100)
    foreach(ONE, 0, 4, version=100)
    foreach(TWO, 0, 3, version=101)
    foreach(TWO, 0, 3, version=101)
    assert len(bodies(tmp_path / "s")) == 7

"""One local Spark session for all tests of this folder, jobs without one, and stores that tests share."""
import json
from types import SimpleNamespace

import pytest

from rmq_store import MessageStore
from tests import golden_store, spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    with spark_session.session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """stores("v5-plain") -> a golden case unpacked once, for tests that only read it."""
    done: dict[str, golden_store.GoldenCase] = {}

    def unpacked(name):
        if name not in done:
            done[name] = golden_store.unpack(name, tmp_path_factory.mktemp(name))
        return done[name]

    return unpacked


class Rows:
    """What run_job(...).collect() gives, without Spark."""

    def __init__(self, made):
        self.made = made

    def collect(self):
        class Row(SimpleNamespace):
            __getitem__ = SimpleNamespace.__getattribute__

            def asDict(self):
                return vars(self)

        return [Row(**row) for batch in self.made for row in batch.to_pylist()]


@pytest.fixture
def tasks(monkeypatch):
    """run_job without a session: every task runs twice, the second time in other order, as retries and speculation may."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    run = pytest.importorskip("rmq_store.spark.jobs.run", reason="pyspark is not installed")

    def run_here(spark, job, arguments):
        arguments = json.loads(json.dumps(arguments))
        module = run.job_module(job)
        parts = json.loads(json.dumps(module.plan(arguments)))
        for part in reversed(parts):
            list(module.work(part, arguments))
        return Rows([batch for part in parts for batch in module.work(part, arguments)])

    monkeypatch.setattr(run, "run_job", run_here)


@pytest.fixture
def own_store(tmp_path):
    """A store of ours with several files of each kind, and its options."""
    options = {"segment_size_bytes": 65536, "consumequeue_file_size_bytes": 800, "index_slots": 16, "index_entries_max": 96}
    with MessageStore.open(tmp_path / "own", **options) as store:
        for i in range(900):
            store.put(("A", "B", "%RETRY%g")[i % 3], b"x" * (i % 400), queue_id=i % 4, tags=("t", None)[i % 2],
                      keys=f"k{i} shared" if i % 5 else None, sys_flag=(0, 0, 0, 4, 12, 8)[i % 6],
                      properties={"UNIQ_KEY": f"u{i}"} if i % 2 else None)
    return tmp_path / "own"


@pytest.fixture
def store_with_removed_queues(tmp_path):
    """A store of ours some of whose queues were removed while their messages are in the log; one of them began anew."""
    options = {"segment_size_bytes": 65536, "consumequeue_file_size_bytes": 800, "index_slots": 16, "index_entries_max": 96}
    with MessageStore.open(tmp_path / "removed", **options) as store:
        for i in range(400):
            store.put(("Gone", "Kept")[i % 2], b"old" * 30, queue_id=i % 8 // 2, tags="t", keys=f"k{i}")
        assert store.delete_topics("Gone").removed == [("Gone", i) for i in range(4)]
        for i in range(300):
            store.put(("Gone", "Kept")[i % 2], b"new" * 30, queue_id=i % 2, tags="t", keys=f"n{i}")
    return tmp_path / "removed"

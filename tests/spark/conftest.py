"""One local Spark session for all tests of this folder, jobs without one, and stores that tests share."""
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest

from rmq_store import MessageStore
from rmq_store.spark import register, write_store
from tests import golden_store, spark_session
from tests.spark.staging_of import SMALL


def pytest_collection_modifyitems(items):
    """Tests that need no session come first: it starts meanwhile."""
    items.sort(key=lambda item: "spark" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session", autouse=True)
def session_to_come(request, tmp_path_factory):
    """The session, on its way from the first test of this folder on, if there is one that needs it. When it comes, the first
    read and the first write, which load thousands of classes and start workers, are over. It proves something before: Spark
    finds the source by itself (it imports pyspark_rocketmq_store) in a session that was told nothing. Plans are not compiled to
    Java code, which takes longer here than to interpret them; clusters and processes of the slow tests do as Spark does."""
    if not any("spark" in item.fixturenames for item in request.session.items):
        yield None
        return
    with suppress(ImportError):     # the thread says what is missing; but two threads must not import one circle at once
        import pyarrow.parquet  # noqa: F401

        import rmq_store.spark.datasource
        import rmq_store.spark.jobs.run  # noqa: F401
    place = tmp_path_factory.mktemp("spark")
    with ExitStack() as opened, ThreadPoolExecutor(1) as thread:
        def start():
            session = opened.enter_context(spark_session.session(
                place, spark__python__daemon__module="tests.spark.warm_daemon", spark__sql__codegen__wholeStage="false",
                spark__sql__codegen__factoryMode="NO_CODEGEN"))
            with MessageStore.open(place / "first", **SMALL) as store:
                store.put("T", b"x")
            assert session.read.format("rocketmq_store").load(str(place / "first")).columns[0] == "topic"
            register(session)       # what Spark found by itself has other workers than what was registered: no more of those
            first = session.read.format("rocketmq_store").load(str(place / "first"))
            assert first.groupBy("topic").count().collect()[0]["count"] == 1
            write_store(first, str(place / "second"), store=SMALL)
            return session

        yield thread.submit(start)


@pytest.fixture(scope="session")
def spark(session_to_come):
    return session_to_come.result()


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


@pytest.fixture
def shell(spark, rmqstore, monkeypatch):
    """rmqstore("spark", ...) in the session that is there: it would stop its own."""
    import rmq_store.spark

    monkeypatch.setattr(rmq_store.spark, "local_session", lambda *a, **k: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return rmqstore

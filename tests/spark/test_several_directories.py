"""Jobs on a log in several directories: all of them, or a clear word about the one that is gone."""
import filecmp
import os
import shutil

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError, CorruptionError, LogDirectoryMissing
from tests.dirs.conftest import Several, numbers
from tests.spark.test_jobs import same_trees

pytestmark = pytest.mark.untraced   # the checker of traces knows a log in the root
SPLIT = 20_000


@pytest.fixture
def three(tmp_path):
    several = Several(tmp_path, "abc")
    several.fill(150)
    assert all(several.files().values())
    return several


@pytest.mark.parametrize("given", [lambda logs: ",".join(map(str, logs)), lambda logs: [str(log) for log in reversed(logs)]])
def test_queues_and_index_are_made_of_the_whole_log(tasks, three, given):
    from rmq_store.spark.jobs import rebuild_index, rebuild_queues

    made = rebuild_queues(None, str(three.root), split_size=SPLIT, commitlog_path=given(three.logs))
    assert (made.queues, made.entries) == (1, 150)
    same_trees(made.directory, three.root / "consumequeue")
    index = rebuild_index(None, str(three.root), split_size=SPLIT, commitlog_path=given(three.logs))
    present = sorted((three.root / "index").iterdir())
    rebuilt = sorted(os.scandir(index.directory), key=lambda e: e.name)
    assert index.keys == 150 and len(rebuilt) == len(present) > 1
    assert all(filecmp.cmp(one.path, two, shallow=False) for one, two in zip(rebuilt, present, strict=True))


def test_installed_queues_serve_the_store(tasks, three):
    from rmq_store.spark.jobs import rebuild_queues

    shutil.rmtree(three.root / "consumequeue")
    rebuild_queues(None, str(three.root), install=True, split_size=SPLIT, commitlog_path=three.options()["commitlog_path"],
                   file_size=2000)
    with three.open() as store:
        assert numbers(store.scan("T", 0)) == list(range(150))


def test_a_directory_that_is_gone(tasks, three):
    from rmq_store.spark.jobs import rebuild_index, rebuild_queues

    logs = three.options()["commitlog_path"]
    three.lose("b")
    for rebuild in (rebuild_queues, rebuild_index):
        with pytest.raises(LogDirectoryMissing, match="a rebuild needs the whole log"):
            rebuild(None, str(three.root), split_size=SPLIT, commitlog_path=logs)
        with pytest.raises(CorruptionError):        # left out: files between others are missing
            rebuild(None, str(three.root), split_size=SPLIT, commitlog_path=[three.logs[0], three.logs[2]])
    assert not (three.root / ".spark" / "rebuild" / "consumequeue").exists()
    three.bring_back("b")
    with pytest.raises(ConfigError, match="each directory once"):
        rebuild_queues(None, str(three.root), commitlog_path=[three.logs[0], three.logs[0]])


def test_an_audit_looks_at_queues_and_index_of_such_a_store(tasks, three):
    from rmq_store.spark.jobs import audit

    logs = three.options()["commitlog_path"]
    report = audit(None, str(three.root), commitLogPath=logs, splitSize=SPLIT)
    assert report.records == 150 and report.findings == []
    queue = next((three.root / "consumequeue" / "T" / "0").iterdir())
    with open(queue, "r+b") as file:
        file.seek(20 * 3)
        file.write(bytes(8))                        # this entry leads to another message now
    found = audit(None, str(three.root), commitLogPath=logs, splitSize=SPLIT).findings
    assert found and all("consumequeue" in f.path or f.topic == "T" for f in found)
    three.lose("c")
    kinds = {f.kind for f in audit(None, str(three.root), commitLogPath=logs, splitSize=SPLIT).findings}
    assert "log_directory" in kinds


def read_all(root, **given):
    from rmq_store.spark.options import ReadOptions
    from rmq_store.spark.reader import partitions_of, rows_of
    from rmq_store.spark.schema import columns_of

    options = ReadOptions.parse({"path": str(root), "columns": "queueOffset", **given})
    return [n.as_py() for part in partitions_of(options) for batch in rows_of(part, options, columns_of(options))
            for n in batch.column(0)]


def test_the_directories_that_the_writer_recorded_are_read(tasks, three, tmp_path):
    """Without an option that names them, and none is left out unsaid."""
    from rmq_store.spark.jobs import rebuild_index, rebuild_queues

    pytest.importorskip("pyspark", reason="pyspark is not installed")
    assert read_all(three.root) == list(range(150))
    assert rebuild_queues(None, str(three.root), split_size=SPLIT).entries == 150
    assert rebuild_index(None, str(three.root), split_size=SPLIT).keys == 150
    three.lose("b")
    with pytest.raises(LogDirectoryMissing):
        read_all(three.root)
    assert 0 < len(read_all(three.root, onCorrupt="skip")) < 150


def test_a_log_elsewhere_is_read_where_the_writer_recorded_it(tmp_path):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    with MessageStore.open(tmp_path / "s", commitlog_path=str(tmp_path / "log")) as store:
        for i in range(5):
            store.put("T", b"%d" % i, queue_id=0)
    assert read_all(tmp_path / "s") == list(range(5))
    (tmp_path / "log").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError, match=r"storeOptions\.json"):
        read_all(tmp_path / "s")
    assert read_all(tmp_path / "s", commitLogPath=str(tmp_path / "away")) == list(range(5))

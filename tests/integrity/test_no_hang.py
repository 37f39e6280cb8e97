"""What is no regular file, or is huge and holds nothing, makes nobody wait: each call answers or says what is wrong."""
import os
import shutil
import subprocess
import sys

import pytest

from rmq_store import MessageStore
from rmq_store.access.bulk._queues import queue_columns
from rmq_store.base.io.files import open_regular
from rmq_store.cli.main import main
from rmq_store.queues.index.geometry import geometry_of

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 50, "index_entries_max": 200}
FILES = ["checkpoint", "lock", "abort", "log", "queue", "index", "config/consumerOffset.json", ".manifest/" + "0" * 20,
         ".manifest/scrub.json", ".stats.json", ".salvage/" + "0" * 20, ".spark/journal/x.json", ".spark/job/part.stage",
         ".spark/export/_manifest.json"]
OTHERS = ["config/topics.json", "config/subscriptionGroup.json", "config/delayOffset.json", "config/removedQueues.json",
          "config/reconsumeCounts.json", "config/consumerOffset.json.bak", "config/topics.json.tmp", "checkpoint.tmp",
          ".stats.json.tmp", ".manifest/scrub.json.tmp", ".spark/journal/" + "a" * 32 + ".json.tmp",
          ".spark/export/_manifest.json.tmp", ".alloc/x"]
CALLS = """
import sys, logging
from contextlib import suppress
from rmq_store import MessageStore, scrub, verify
from rmq_store.errors import RmqStoreError
from rmq_store.cli.main import main
from rmq_store.services.integrity.repair import repair
from rmq_store.spark import staging
from rmq_store.spark.jobs.export import _write_manifest, verify_export
logging.disable(logging.CRITICAL)
root = sys.argv[1]
part = staging.Staged(root + "/.spark/job/part.stage", (1 << 40) - 20, 1, 0)
def everything():
    with MessageStore.open(root, stats_file_interval_ms=1000) as s:
        s.put("T", b"x", wait=True)
        s.topic_table.set("T", readQueueNums=2)
        s.topic_table.flush()
        s.lag(), s.delay_levels(), s.group_stats(), s.clean(hours=1), s.offsets.flush()
for call in (lambda: list(verify(root)), lambda: scrub(root, bytes_per_s=None),
             lambda: repair(root, dry_run=True), lambda: main(["stat", root]),
             lambda: main(["stat", root, "-w", "0.01", "-n", "1"]),
             lambda: main(["offsets", "show", root]), lambda: MessageStore.open(root, readonly=True).close(),
             lambda: main(["topics", "list", root]), lambda: main(["groups", "list", root]), lambda: main(["doctor", root]),
             lambda: list(staging.journals(root)), lambda: staging.verify(part),
             lambda: staging.write_journal(root + "/.spark/journal/" + "a" * 32 + ".json", {}),
             lambda: verify_export(root + "/.spark/export"),
             lambda: _write_manifest(root + "/.spark/export", {}),
             lambda: scrub(root, bytes_per_s=None, make_manifests=True),
             lambda: repair(root, dry_run=True, restore=True),
             lambda: repair(root, dry_run=False, restore=True, open_store=MessageStore.open),
             lambda: staging.commit_staged(root, "a", 7, []), everything,
             lambda: MessageStore.open(root).close()):
    with suppress(OSError, RmqStoreError, SystemExit):
        call()
print("came back")
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("base") / "s"
    with MessageStore.open(root, **SMALL) as s:
        for i in range(150):
            s.put("T", bytes(600), keys=f"k{i}")
        s.offsets.commit("g", "T", 0, 1)
    return root


@pytest.fixture
def root(base, tmp_path):
    return shutil.copytree(base, tmp_path / "s")


def all_come_back(root):
    out = subprocess.run([sys.executable, "-c", CALLS, root], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0 and out.stdout.endswith("came back\n"), out.stderr[-2000:]


def place(root, what):
    return {"log": sorted((root / "commitlog").iterdir())[-1], "queue": root / "consumequeue/T/0" / ("0" * 20),
            "index": sorted((root / "index").iterdir())[-1]}.get(what, root / what)


@pytest.mark.parametrize("what", FILES + OTHERS)
def test_a_pipe_in_the_place_of_a_file(root, what):
    path = place(root, what)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    all_come_back(root)


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_a_tebibyte_of_nothing(root, what):
    path = place(root, what)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        os.truncate(path, 1 << 40)
    except OSError:
        pytest.skip("this file system has no files that long")
    all_come_back(root)


def test_a_log_of_one_file_that_is_mostly_nothing(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put("T", b"x" * 100)
    (file,) = (tmp_path / "s/commitlog").iterdir()
    try:
        os.truncate(file, 1 << 40)
    except OSError:
        pytest.skip("this file system has no files that long")
    all_come_back(tmp_path / "s")


def test_a_file_of_the_log_that_is_called_by_the_last_offset(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put("T", b"x" * 100)
    (file,) = (tmp_path / "s/commitlog").iterdir()
    file.rename(file.with_name(f"{(1 << 63) - 1 - (1 << 16):020d}"))
    all_come_back(tmp_path / "s")


def test_readers_without_a_store_open_no_pipe(tmp_path, capsys):
    pipe = tmp_path / ("0" * 20)
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is a pipe or a device") as refused:
        queue_columns(str(pipe), 0, 1)
    assert refused.value.filename == str(pipe)
    assert main(["dump", str(pipe)]) == 3
    assert str(pipe) in capsys.readouterr().err


def test_the_geometry_is_found_behind_a_hole(tmp_path):
    """Entries at the end of a huge file: what is between them and the header is not read."""
    with MessageStore.open(tmp_path / "s", **{**SMALL, "index_slots": 5_000_000}) as s:
        s.put("T", b"x" * 300)
        s.put("T", b"x", keys="a b c")      # its place in the log is what is looked for
        s.wait_dispatched(10)
    (file,) = (tmp_path / "s/index").iterdir()
    fd = open_regular(str(file))
    try:
        assert geometry_of(fd) == (5_000_000, 200)
    finally:
        os.close(fd)

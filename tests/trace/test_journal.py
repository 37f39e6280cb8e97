"""What commits of staged records say in their journals is judged like any other telling, and at each step of a commit the power
is cut: the commit that follows stores each record once, and in order. Then steps that no commit may leave out are left out."""
import itertools
import os
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io.files import ControlFiles
from rmq_store.errors import RmqStoreError
from rmq_store.spark import leftovers, shards, staging
from tests.crash.disk import Disk
from tests.crash.states import Scratch, explore
from tests.spark.staging_of import batch, expected
from tests.trace.checker import Checker
from tests.trace.outside import watch_commits
from tests.trace.recorder import Recorder

pytestmark = pytest.mark.crash
SMALL = {"segment_size_bytes": 16384, "index_slots": 20, "index_entries_max": 100, "consumequeue_file_size_bytes": 2000}


def commit(root, version=0, **more):
    """Thirteen messages, staged by two tasks of a job of their own."""
    job, parts = uuid.uuid4().hex, []
    if not staging.enter(root, job, "app", version):
        return staging.commit_staged(root, "app", version, [], SMALL, job)
    for partition, first, count in ((0, 0, 9), (1, 9, 4)):
        file = staging.StageFile(root, job, partition)
        file.add(batch(count, first), count)
        parts.append(file.finish())
    return staging.commit_staged(root, "app", version, parts, SMALL, job, **more)


def two_commits(root):
    commit(root)
    commit(root, 1)


def a_commit_that_another_finishes(root):
    real = staging.append_staged

    def broken(*arguments):
        staging.append_staged = real
        raise OSError(5, "the first append")

    staging.append_staged = broken
    with suppress(OSError):
        commit(root)
    staging.append_staged = real
    staging.commit_staged(root, "other", 0, [], SMALL)


def a_commit_whose_records_are_not_promised(root):
    commit(root, fsync=False)


def two_shards(root):
    assert staging.enter(root, "job", "app", 0)
    made = [shards.build_shard(root, "job", i, iter([batch(3)]), SMALL) for i in range(2)]
    shards.commit_shards(root, "app", 0, made, "job")


def recorded(root, work, plant=lambda patch: None):
    """The trace of it."""
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        recorder.watch(patch)
        watch_commits(patch, recorder.table)
        plant(patch)
        work(root)
    return recorder.table().trace()


def broken_rules(root, trace):
    checker = Checker()
    checker.know(root, {})
    checker.feed(trace)
    return {finding.partition(":")[0] for finding in checker.findings}, checker.told


@pytest.fixture
def root(tmp_path):
    (tmp_path / "s").mkdir()
    return str(tmp_path / "s")


@pytest.mark.parametrize("work", [two_commits, a_commit_that_another_finishes, a_commit_whose_records_are_not_promised,
                                  two_shards], ids=lambda f: f.__name__)
def test_commits_keep_the_rules(root, work):
    found, told = broken_rules(root, recorded(root, work))
    assert not found and told >= 4


# ---- what must not be left out

def no_flush(patch):
    patch.setattr(MessageStore, "flush", lambda store: store._position("flushed"))


def no_directories(patch):
    patch.setattr(staging, "sync_names", lambda root, paths: None)
    patch.setattr(shards, "sync_names", lambda root, paths: None)


def no_sync_of_a_part(patch):
    real = staging.os.fsync
    patch.setattr(staging, "os", Skips(staging.os, lambda fd: None if staged_file(fd) else real(fd)))


def no_sync_of_a_journal(patch):
    real = staging.os.fsync
    patch.setattr(staging, "os", Skips(staging.os, lambda fd: real(fd) if staged_file(fd) else None))


def no_name_of_a_journal(patch):
    patch.setattr(staging, "sync", lambda path: None if path.endswith("/journal") else leftovers.sync(path))


def no_names_of_shards(patch):
    patch.setattr(shards, "ControlFiles", NoNames)


class NoNames(ControlFiles):
    def __init__(self, table):
        super().__init__(table)
        self.sync_dir = lambda path: None


class Skips:
    """`os` with another fsync."""

    def __init__(self, real, fsync):
        self._real, self.fsync = real, fsync

    def __getattr__(self, name):
        return getattr(self._real, name)


def staged_file(fd):
    return os.readlink(f"/proc/self/fd/{fd}").endswith(".stage")


FORGOTTEN = [(no_flush, two_commits, "durable"), (no_directories, two_commits, "journal"),
             (no_sync_of_a_part, two_commits, "journal"), (no_sync_of_a_journal, two_commits, "rename"),
             (no_name_of_a_journal, two_commits, "journal"), (no_directories, two_shards, "journal"),
             (no_names_of_shards, two_shards, "journal")]


@pytest.mark.parametrize(("plant", "work", "rule"), FORGOTTEN, ids=lambda f: getattr(f, "__name__", ""))
def test_a_commit_that_forgets_is_found(root, plant, work, rule):
    found, _ = broken_rules(root, recorded(root, work, plant))
    assert rule in found


# ---- power cuts

def judged(scratch, original):
    """Does what a driver does whose commits were cut off: both again. Nothing is there twice, nothing is lost."""
    def one_state(image, notes):
        root = scratch.write(image)
        for place, _, names in os.walk(os.path.join(root, ".spark", "journal")):
            for name in names:              # it names files by where they were
                path = Path(place, name)
                path.write_bytes(path.read_bytes().replace(original.encode(), root.encode()))
        written = [note for note in notes if note[0] in ("journal", "journalled")]
        done = max([before[3]["done"] for before, after in itertools.pairwise(written) if after[0] == "journalled"
                    and before[3].get("pending") is None], default=-1)
        for version in (0, 1):
            try:
                repeated = commit(root, version).repeated
            except (RmqStoreError, OSError, ValueError) as error:
                return f"version {version}: {error!r}"
            if version <= done and not repeated:
                return f"version {version} was done, and is done again"
        with MessageStore.open(root, readonly=True) as store:
            found = [bytes(m.body) for m in store.scan()]
        return None if found == 2 * expected(13) else f"the log holds {len(found)}: {found}"

    return one_state


def states_of(root, tmp_path, plant=lambda patch: None):
    trace = recorded(root, two_commits, plant)
    with Scratch(tmp_path) as scratch:
        return explore(Disk(root), trace, judged(scratch, root), per_cut=2, stop_after=1)


def test_power_fails_at_every_step_of_two_commits(root, tmp_path):
    report = states_of(root, tmp_path)
    assert not report.violations and report.states > 40, report


@pytest.mark.parametrize("plant", [no_directories, no_sync_of_a_part, no_name_of_a_journal], ids=lambda f: f.__name__)
def test_power_fails_in_a_commit_that_forgets(root, tmp_path, plant):
    assert states_of(root, tmp_path, plant).violations

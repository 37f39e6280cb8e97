"""A journal that says "pending" speaks of files: their names are on the device before it is."""
import os

import pytest

from rmq_store.spark import leftovers, shards, staging
from tests.spark.staging_of import SMALL, batch, staged


@pytest.fixture
def synced(monkeypatch):
    """Directories in the order in which they are synced; "journal" where a journal is written."""
    calls = []
    monkeypatch.setattr(staging, "sync", lambda path: (calls.append(path), leftovers.sync(path)))
    write = staging.write_journal

    def journal(path, entry):
        if entry.get("pending") is not None:
            calls.append("journal")
        write(path, entry)

    monkeypatch.setattr(staging, "write_journal", journal)
    monkeypatch.setattr(shards, "write_journal", journal)
    return calls


def before(calls):
    return set(calls[:calls.index("journal")])


def test_of_staged_files(tmp_path, synced):
    root = str(tmp_path / "s")
    staging.commit_staged(root, "app", 0, staged(root, 7, 5), SMALL, "job")
    assert before(synced) >= {f"{root}/.spark/job", f"{root}/.spark", root}


def test_of_shards(tmp_path, synced):
    root = str(tmp_path / "s")
    assert staging.enter(root, "job", "app", 0)
    made = [shards.build_shard(root, "job", i, iter([batch(3)]), SMALL) for i in range(2)]
    shards.commit_shards(root, "app", 0, made, "job")
    assert before(synced) >= {f"{root}/.spark/job", f"{root}/.spark", root}
    assert sorted(name for name in os.listdir(root) if name[0] != ".") == ["shard-00000", "shard-00001"]

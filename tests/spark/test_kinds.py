"""A root is a store or holds the stores of a bulk load, also while either is only decided; and what journals are kept."""
import os
import uuid

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError
from rmq_store.spark import shards, staging
from tests.spark.staging_of import SMALL, batch, bodies, expected, staged


class Crash(BaseException):
    pass


def dies(step):
    def die(name):
        if name == step:
            raise Crash

    return die


def built(root, job, n):
    assert staging.enter(root, job, "app", 0)
    return [shards.build_shard(root, job, 0, [batch(n)], SMALL)]


def test_a_bulk_load_that_broke_off_keeps_stores_out_and_is_completed(tmp_path, monkeypatch):
    root = str(tmp_path / "s")
    monkeypatch.setattr(shards, "_step", dies("pending"))
    with pytest.raises(Crash):
        shards.commit_shards(root, "app", 0, built(root, "job", 5), "job")
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"stores of a bulk load, version 0 of application 'app', which was interrupted: "
                                          "complete it with shards=N"):
        staging.commit_staged(root, "other", 0, staged(root, 3, job="job2"), SMALL, "job2")
    staging.abandon(root, "job2")
    assert os.listdir(root) == [".spark"]
    shards.commit_shards(root, "other", 0, [], "job3")
    assert bodies(tmp_path / "s" / "shard-00000") == expected(5)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("step", ["pending", "done"])
def test_a_commit_that_broke_off_keeps_bulk_loads_out(tmp_path, monkeypatch, step, elsewhere):
    """Also where the log is not in the root, by which a store is known otherwise."""
    root = str(tmp_path / "s")
    options = SMALL | ({"commitlog_path": str(tmp_path / "log")} if elsewhere else {})
    monkeypatch.setattr(staging, "_step", dies(step))
    with pytest.raises(Crash):
        staging.commit_staged(root, "app", 0, staged(root, 3), options, "job")
    monkeypatch.undo()
    for call in (lambda: shards.build_shard(root, "job2", 0, [batch(1)], SMALL),
                 lambda: shards.commit_shards(root, "b", 0, [])):
        with pytest.raises(ConfigError, match="is a store itself"):
            call()
    staging.commit_staged(root, "other", 0, [], options)
    assert bodies(root, **{k: v for k, v in options.items() if k == "commitlog_path"}) == expected(3)


def journals(root):
    return os.listdir(os.path.join(root, ".spark", "journal"))


@pytest.mark.parametrize("kind", ["staged", "shards"])
def test_journals_of_writes_without_an_application_do_not_pile_up(tmp_path, kind):
    """The newest stays until the next commit: by it an attempt that is late sees that its job is over."""
    root = str(tmp_path / "s")
    for i in range(12):
        job = uuid.uuid4().hex
        if kind == "staged":
            staging.commit_staged(root, job, 0, staged(root, 1, job=job), SMALL, job)
        else:
            shards.commit_shards(root, job, 0, built(root, job, 1) if i < 2 else [], job)
        assert len(journals(root)) == 1 and not staging.enter(root, job, job, 0)
    if kind == "staged":
        for version in (3, 4):
            staging.commit_staged(root, "app", version, staged(root, 1), SMALL, "job")
        staging.commit_staged(root, "other", 0, [], SMALL)
        assert len(journals(root)) == 2 and staging.last_done(root, "app") == 4 and len(bodies(root)) == 14


def test_a_write_without_an_application_that_broke_off_keeps_its_journal_until_it_is_complete(tmp_path, monkeypatch):
    root, job = str(tmp_path / "s"), uuid.uuid4().hex
    monkeypatch.setattr(staging, "_step", dies("pending"))
    with pytest.raises(Crash):
        staging.commit_staged(root, job, 0, staged(root, 3, job=job), SMALL, job)
    monkeypatch.undo()
    staging.commit_staged(root, "other", 0, [], SMALL)
    assert bodies(root) == expected(3) and len(journals(root)) == 1


def test_shards_that_no_commit_made_are_not_renamed(tmp_path):
    from rmq_store.errors import CorruptionError

    with MessageStore.open(tmp_path / "precious", **SMALL) as store:
        store.put("T", b"x")
    root = str(tmp_path / "s")
    for made, name in (("../precious", "shard-00000"), (".spark/job/../../../precious", "shard-00000"),
                       (".spark/job/shard-00000-a", "../precious"), (".spark/journal/x.json", "shard-00000")):
        path = staging.journal_of(root, "app")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        staging.write_journal(path, {"app": "app", "done": None, "pending": 0, "job": "job", "shards": {made: name}})
        with pytest.raises(CorruptionError, match="a journal of commits"):
            shards.commit_shards(root, "other", 0, [])
    assert bodies(tmp_path / "precious") == [b"x"]

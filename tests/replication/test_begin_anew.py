"""Queues that the master removes and begins anew: the slave comes to the same queues, also when it was away or was killed."""
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_store import MessageStore, promote
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from rmq_store.replication.anew import QueuesAnew
from tests.images import take_image
from tests.replication.pairs import SMALL, caught_up, content_of, fill, joined, master, queues_of, same_log, same_queues, slave
from tests.replication.test_kills import Other
from tests.soon import until


def anew(m: MessageStore, topic: str = "T", before: int = 5, after: int = 3) -> None:
    """Messages, and the topic without them, and others in the same queue."""
    for i in range(before):
        m.put(topic, b"old %d" % i, keys="old")
    m.delete_topics(topic)
    for i in range(after):
        m.put(topic, b"new %d" % i, keys="new")


@pytest.mark.parametrize("after", [1, 3, 20])       # fewer and more than there were
def test_a_deleted_topic_that_gets_messages_again(tmp_path: Path, after: int) -> None:
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        joined(m)
        m.put("other", b"x")
        anew(m, after=after)
        m.put("other", b"y")
        caught_up(s, m)
        same_queues(m, s)
        assert content_of(s, "T", 0)[0] == (0, b"new 0", "new")
        assert (s.min_offset("T", 0), s.max_offset("T", 0)) == (0, after)
        same_log(m, s)


def test_again_and_again_while_the_slave_is_away(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m:
        with slave(tmp_path / "s", m) as s:
            joined(m)
            anew(m)
            caught_up(s, m)
        for _ in range(3):
            anew(m)
            anew(m, "U")
        with slave(tmp_path / "s", m) as s:
            caught_up(s, m)
            same_queues(m, s)
    with master(tmp_path / "s") as promoted:
        assert content_of(promoted, "T", 0) == [(i, b"new %d" % i, "new") for i in range(3)]
        assert promoted.put("T", b"next").queue_offset == 3


def test_close_comes_behind_queues_that_begin_anew(tmp_path: Path) -> None:
    """Whatever the log of a slave has when it closes is in its queues."""
    with master(tmp_path / "m") as m:
        with slave(tmp_path / "s", m) as s:
            joined(m)
            for _ in range(20):
                anew(m, before=2, after=1)
            until(lambda: s.max_log_offset == m.max_log_offset, 20_000)
        expected = {queue: content_of(m, *queue) for queue in queues_of(m)}
    with MessageStore.open(tmp_path / "s", readonly=True) as read:
        assert {queue: content_of(read, *queue) for queue in queues_of(read)} == expected


@pytest.mark.parametrize("cycles", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_slave_that_is_killed_in_between(tmp_path: Path, cycles: int) -> None:
    """Before, while, or after its queues are removed: opened again as a slave it comes to its master's queues."""
    r = random.Random(cycles)
    with master(tmp_path / "m") as m:
        m.put("other", b"x")
        for cycle in range(cycles):
            follower = Other("slave", tmp_path / "s", m.replication().address, cycle)
            assert follower.line() == "follows"
            for _ in range(r.randrange(1, 8)):
                anew(m, before=3, after=2)
            follower.kill()
        with slave(tmp_path / "s", m) as s:
            caught_up(s, m)
            same_queues(m, s)


def killed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, list[tuple]]]:
    """A slave that was killed before it removed its queues, and what they have on the master. The group G had read T."""
    monkeypatch.setattr(QueuesAnew, "_settle", lambda self: False)
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m, close_timeout_ms=100) as s:
        joined(m)
        anew(m)
        anew(m, "U", after=1)
        until(lambda: s.max_log_offset == m.max_log_offset, 20_000)
        s.offsets.commit("G", "T", 0, 5)
        s.offsets.flush()
        s.flush()
        image = take_image(tmp_path / "s", tmp_path / "image")
        assert m.wait_dispatched(30)
        expected = {topic: content_of(m, topic, 0) for topic in ("T", "U")}
    monkeypatch.undo()
    return image, expected


@pytest.mark.parametrize("then", ["promoted", "opened"])
def test_a_slave_that_was_killed_before_it_removed_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    image, expected = killed_before(tmp_path, monkeypatch)
    if then == "opened":
        with slave(image, "127.0.0.1:1") as again:
            assert again.wait_dispatched(30)
    promote(image, **SMALL)
    with MessageStore.open(image, **SMALL) as promoted:
        assert {topic: content_of(promoted, topic, 0) for topic in ("T", "U")} == expected
        assert expected["T"] == [(i, b"new %d" % i, "new") for i in range(3)]
        assert promoted.put("U", b"next").queue_offset == 1


def dies(path: Path, n: int) -> bool:
    """A slave that removes its queues dies at the n-th call that changes something. Whether there were so many."""
    probe = ProbeIo()
    probe.freeze("mutate|sync", n)
    with suppress(RmqStoreError, OSError), slave(path, "127.0.0.1:1", _io=probe, close_timeout_ms=100) as s:
        while not probe.frozen and not s.wait_dispatched(0.05):
            pass
    return probe.frozen


@pytest.mark.filterwarnings("ignore:closed .* with dispatch at offset")
@pytest.mark.parametrize("step", [43, pytest.param(1, marks=pytest.mark.slow)])
def test_a_slave_dies_anywhere_twice_while_it_removes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    image, expected = killed_before(tmp_path, monkeypatch)
    r, n, more = random.Random(step), 1, True
    while more:
        copy = tmp_path / f"copy{n}"
        shutil.copytree(image, copy)
        more = dies(copy, n)
        dies(copy, r.randrange(1, 60))
        promote(copy, **SMALL)
        with MessageStore.open(copy, **SMALL) as promoted:
            assert {topic: content_of(promoted, topic, 0) for topic in ("T", "U")} == expected
            assert promoted.offsets.query("G", "T", 0) == 0
        shutil.rmtree(copy)
        n += step
    assert n > 40


def test_offsets_of_consumers_begin_anew(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        joined(m)
        anew(m, after=0)
        until(lambda: s.max_offset("T", 0) == 5)
        s.offsets.commit("G", "T", 0, 5)
        s.offsets.commit("G", "T", 1, 7)
        m.put("T", b"new")
        caught_up(s, m)
        assert [s.offsets.query("G", "T", n) for n in (0, 1)] == [0, 7]


def test_a_number_that_is_rotten_empties_no_queue(tmp_path: Path) -> None:
    """The records behind it continue where the queue was."""
    with master(tmp_path / "m") as m:
        for i in range(6):
            m.put("T", b"%d" % i, queue_id=0)
        end = m.max_log_offset
    file = tmp_path / "m" / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    size = end // 6
    data[4 * size + 20:4 * size + 28] = bytes(8)        # the queue offset of the fifth record
    file.write_bytes(data)
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        caught_up(s, m)
        assert [bytes(x.body) for x in s.scan("T", 0)][:4] == [b"0", b"1", b"2", b"3"]
        assert b"5" in [bytes(x.body) for x in s.scan("T", 0)]


def test_removed_queues_have_no_findings(tmp_path: Path) -> None:
    """Tools that read a slave's directory know where its queues begin."""
    from rmq_store import verify
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        joined(m)
        fill(m, 20)
        anew(m)
        caught_up(s, m)
    assert [f for f in verify(tmp_path / "s") if f.severity != "note"] == []

"""Light queues under a reader that follows: their messages are of other topics, and so are the records that tell of them."""
import random
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.elsewhere.lives import between_lives
from tests.soon import until

SIZES = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 400, "index_enabled": False, "manifest_enabled": False}
LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


def found(store: MessageStore, name: str, begin: int = 0) -> list[tuple[int, bytes]]:
    return [(offset, bytes(m.body).rstrip(b"\0")) for offset in range(begin, store.max_offset(name, 0))
            for m in store.get(name, 0, offset, 1)]


def fill(store: MessageStore, names: list[str], life: int, count: int, size: int = 8) -> None:
    for n in range(count):
        store.put("D", (b"%d %d" % (life, n)).ljust(size, b"\0"), light_queues=names)


@pytest.mark.parametrize("count", [1, 30, 60])
@pytest.mark.parametrize("opened_between", [False, True])
def test_it_begins_anew(tmp_path: Path, count: int, opened_between: bool) -> None:
    """With fewer messages than before, and with more. Its first messages were cleaned before."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES, **LIGHT) as writer:
        fill(writer, ["a"], 0, 45, 3000)
    with MessageStore.open(root, **SIZES, **LIGHT) as writer:
        while writer.min_offset("%LMQ%a", 0) < 25:
            writer.clean(0, files_max=1, pace_ms=0)
        if opened_between:
            fill(writer, ["b"], 0, 1)
        with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
            assert found(reader, "%LMQ%a", 25) == found(writer, "%LMQ%a", 25)
            writer.delete_topics("%LMQ%a")
            fill(writer, ["a"], 1, count)
            assert writer.wait_dispatched(30)
            until(lambda: found(reader, "%LMQ%a") == found(writer, "%LMQ%a"), 20_000)
            assert (reader.min_offset("%LMQ%a", 0), reader.max_offset("%LMQ%a", 0)) == (0, count)


def test_one_that_is_new_is_followed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", **SIZES, **LIGHT) as writer:
        writer.put("D", b"before")
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as reader:
            fill(writer, ["a", "b"], 0, 30)
            assert reader.wait_for_message("%LMQ%a", 0, 29, 20)
            until(lambda: found(reader, "%LMQ%b") == found(writer, "%LMQ%b"), 20_000)
            assert {"%LMQ%a", "%LMQ%b"} <= set(reader.topics())


def test_many_at_rest_are_left_alone(tmp_path: Path) -> None:
    """They cost a follower nothing as long as nothing is put into them."""
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", **SIZES, **LIGHT) as writer:
        for n in range(200):
            fill(writer, [f"q{n}"], 0, 1)
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, _io=io, **SIZES) as reader:
        reader._look_on()
        before = dict(io.counts())
        for _ in range(10):
            reader._look_on()
        after = io.counts()
        assert sum(after.get(name, 0) - before.get(name, 0) for name in ("open", "pread")) < 100


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 40))])
def test_many_lives(tmp_path: Path, seed: int) -> None:
    """They are deleted, cleaned and filled again, and the writer comes again."""
    rng = random.Random(seed)
    root, names = tmp_path / "s", [f"{n}" for n in range(6)]
    writer = MessageStore.open(root, **SIZES, **LIGHT)
    fill(writer, ["0"], 0, 3)
    assert writer.wait_dispatched(30)
    with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        for life in range(1, 15):
            lives = [topic for topic in writer.topics() if topic.startswith("%LMQ%")]
            writer = between_lives(rng, writer, lives, **SIZES, **LIGHT)
            for _ in range(rng.randrange(1, 4)):
                count, size = rng.choice([1, 1, 2, 5, 30]), rng.choice([8, 8, 2000])
                fill(writer, rng.sample(names, rng.randrange(1, 6)), life, count, size)
                if rng.random() < 0.5:
                    reader._look_on()
            assert writer.wait_dispatched(30)
            reader._look_on()
            for topic in writer.topics():
                assert reader.max_offset(topic, 0) == writer.max_offset(topic, 0), topic
                low = writer.min_offset(topic, 0)
                assert found(reader, topic, low) == found(writer, topic, low), topic
    writer.close()


def test_queues_that_have_all_are_at_rest(tmp_path: Path) -> None:
    """The queue offset of a record is of its own queue, and says nothing of the light ones."""
    io, names = ProbeIo(keep_bytes=False), [f"q{n}" for n in range(100)]
    with MessageStore.open(tmp_path / "s", enable_lmq=True, enable_multi_dispatch=True, **SIZES) as writer:
        for _ in range(5):
            writer.put("Z", b"x", light_queues=["a"])
        assert writer.wait_dispatched(30)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, consumequeue_fd_max=16, _io=io, **SIZES) as reader:
            for name in names:
                writer.put("Z", b"x", light_queues=[name])
                assert writer.wait_dispatched(30)
                until(lambda: reader.max_offset(f"%LMQ%{name}", 0) == 1, 20_000)      # noqa: B023
                reader._look_on()
                assert reader.max_offset(f"%LMQ%{name}", 0) == 1
            opens = io.counts()["open"]
            for _ in range(200):
                reader._look_on()
            assert io.counts()["open"] - opens < 10

"""skip_holes: a log that lost files, or parts of them, is read all the same; without it the error says what is whole."""
import json

import pytest

from rmq_store import MessageStore, copy_messages, errors
from rmq_store.services.integrity.repair import repair
from tests.integrity.test_lost_files import LOST, SIZE, filled, lose, whole
from tests.integrity.test_undo import shape

pytestmark = pytest.mark.untraced       # files are changed behind the trace's back
CASES = {**LOST, "newest short": {-1: 3000}, "newest short, one gone": {1: None, -1: 3000}}


def numbers(messages):
    return sorted(int(bytes(m.body).split(b".")[0]) for m in messages)


@pytest.mark.parametrize("what, killed", [*((what, False) for what in CASES),
                                          *((what, True) for what in ("one", "short", "newest short"))])
def test_what_is_whole_is_served(tmp_path, what, killed):
    root = tmp_path / "s"
    puts = filled(root)
    if killed:
        (root / "abort").touch()
    left = whole(puts, lose(root, CASES[what]))
    before = shape(root)
    with MessageStore.open(root, readonly=True, skip_holes=True) as store:
        for topic, queue in {place[:2] for place in puts}:
            here = {n: i for (t, q, n), i in left.items() if (t, q) == (topic, queue)}
            assert numbers(store.scan(topic, queue)) == sorted(here.values())
            if "newest short" not in what:
                assert store.max_offset(topic, queue) == 1 + max(n for t, q, n in puts if (t, q) == (topic, queue))
            for n in {n for t, q, n in puts if (t, q) == (topic, queue)} - set(here):
                result = store.get(topic, queue, n, 1)
                assert not len(result) or n < result[0].queue_offset in here
                del result
        assert numbers(store.scan()) == sorted(left.values())
        walked = list(store.log_records())
        assert [at + size for _, at, size, _ in walked[:-1]] == [at for _, at, _, _ in walked[1:]]      # no byte left out
        i = max(left.values())
        assert len(store.query_key("TU"[i % 2], f"k{i}")) == 1
        del walked
    assert shape(root) == before


@pytest.mark.parametrize("what", ["one", "short", "empty", "newest but one"])
def test_the_error_says_what_is_whole_and_both_cures(tmp_path, what):
    root = tmp_path / "s"
    puts = filled(root)
    gone = lose(root, LOST[what])
    behind = gone[-1][1]
    count = sum(at >= behind for at, _, _ in puts.values())
    before = shape(root)
    for options in ({}, {"readonly": True}):
        with pytest.raises(errors.StoreRefusesToLoad) as caught:
            MessageStore.open(root, **options)
        text = str(caught.value)
        assert f"queues lead to {count} messages behind that, from log offset {behind} on" in text
        assert "`--skip-holes`" in text and f"`rmqstore repair {root}`" in text
    with pytest.raises(errors.StoreRefusesToLoad, match="queues lead to"):
        copy_messages(root, tmp_path / "new")
    assert shape(root) == before


def test_it_is_for_reading(tmp_path):
    for options in ({}, {"readonly": True, "follow": True}):
        with pytest.raises(errors.ConfigError, match="skip_holes=True is for reading"):
            MessageStore.open(tmp_path / "s", skip_holes=True, **options)


def test_a_wrong_size_of_all_files_is_no_loss(tmp_path):
    filled(tmp_path / "s")
    with pytest.raises(errors.StoreRefusesToLoad) as caught:
        MessageStore.open(tmp_path / "s", readonly=True, segment_size_bytes=2 * SIZE)
    assert "skip-holes" not in str(caught.value)


@pytest.mark.parametrize("lost", [{}, LOST["one"], LOST["short"], {1: SIZE // 2, 3: SIZE // 2}, LOST["longer"]], ids=str)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_given_size_that_is_not_the_log_s_loses_nothing(tmp_path, lost, recorded):
    """A reader that believed it would take the ends of whole files for lost, and repair would cut them off."""
    root = tmp_path / "s"
    left = whole(filled(root), lose(root, lost) if lost else [])
    if not recorded:
        (root / "config/storeOptions.json").unlink()        # as Java leaves a store
    before = shape(root)
    for size in (4096, SIZE // 2, SIZE - 4096, 2 * SIZE):
        given = {"segment_size_bytes": size}
        for call in (lambda given=given: MessageStore.open(root, readonly=True, skip_holes=True, **given),
                     lambda given=given: copy_messages(root, tmp_path / "new", source_options=given | {"skip_holes": True}),
                     lambda given=given: repair(root, dry_run=False, open_store=MessageStore.open, **given)):
            with pytest.raises(errors.StoreRefusesToLoad, match=f"{size} bytes, as segment_size_bytes says, found .* {SIZE} "
                               f"bytes.*leave segment_size_bytes out, or give {SIZE}"):
                call()
    assert shape(root) == before and not (tmp_path / "new").exists()
    with MessageStore.open(root, readonly=True, skip_holes=True, segment_size_bytes=SIZE) as store:
        assert numbers(store.scan()) == sorted(left.values())


def test_the_commands(tmp_path, rmqstore):
    root = tmp_path / "s"
    puts = filled(root)
    with open(root / "commitlog" / f"{3 * SIZE:020d}", "r+b") as file:      # and a damaged part in a file that is there
        file.seek(1000)
        file.write(b"\xff" * 500)
    gone = [*lose(root, {1: 700, 2: None}), (3 * SIZE + 1000, 3 * SIZE + 1500)]
    left = whole(puts, gone)
    lost = sorted((t, q, n) for t, q, n in set(puts) - set(left) if t == "T")
    before = shape(root)
    for command in (("get", "-t", "T"), ("export",), ("readback",)):
        code, _, err = rmqstore(command[0], root, *command[1:])
        assert code == 2 and "`--skip-holes`" in err
    code, out, err = rmqstore("export", root, "--skip-holes", "-t", "T")
    assert code == 1 and f"passed over {len(lost)} messages that {root} has lost: T/" in err
    here = sorted(place for place in left if place[0] == "T")
    assert sorted((row["topic"], row["queue_id"], row["queue_offset"]) for row in map(json.loads, out.splitlines())) == here
    code, out, err = rmqstore("get", root, "--skip-holes", "-t", "T", "-c", 10_000, "--json")
    assert code == 0 and sorted((row["topic"], row["queue_id"], row["queue_offset"])
                                for row in map(json.loads, out.splitlines())) == here
    assert "messages that" in err and "T/0 " in err
    code, out, err = rmqstore("copy", root, tmp_path / "new", "--skip-holes", "-o", f"segment_size_bytes={SIZE}")
    assert code == 1 and f"copied {len(left)} messages" in out and f"passed over {len(puts) - len(left)} messages" in err
    assert rmqstore("copy", root, tmp_path / "same", "--as-is", "--skip-holes")[0] == 64 and not (tmp_path / "same").exists()
    code, out, err = rmqstore("readback", root, "--skip-holes", "--tmp", tmp_path)
    assert code == 0 and f"put tombstones for {len(puts) - len(left)} messages" in err
    assert sum('"t":"msg"' in line for line in out.splitlines()) == len(puts)
    assert shape(root) == before

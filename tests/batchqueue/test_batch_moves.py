"""Inner batches in copies, in exports and imports: each record once, at the end of the target's queues or where it was."""
import json
from pathlib import Path

import pytest

from rmq_store import MessageStore, copy_messages, errors, verify
from rmq_store.cli.main import main
from rmq_store.services.backup import source as backup_source
from rmq_store.upkeep.moving import journal, messages
from tests.batchqueue.test_batch_queues import SMALL, bodies, fill, make, read, units

pytestmark = pytest.mark.untraced       # copies write through an I/O table of their own


class Died(Exception):
    pass


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with make(tmp_path / "s") as store:
        fill(store, 40)
    return tmp_path / "s"


@pytest.mark.parametrize("as_is", [False, True])
def test_a_copy_has_every_message_of_a_batch(source: Path, tmp_path: Path, as_is: bool) -> None:
    assert copy_messages(source, tmp_path / "t", as_is=as_is, **SMALL).copied == 80
    assert copy_messages(source, tmp_path / "t", as_is=as_is).copied == 0
    with MessageStore.open(tmp_path / "t") as store:
        assert store.batch_topics == {"B"} and read(store) == bodies(40) and store.max_offset("P", 0) == 40
        assert [m.properties["KEYS"] for m in store.get("B", 0, 0, 3)] == ["k0", "k1", "k1"]
        fill(store, 3, 40)
        store.wait_dispatched()
        assert read(store) == bodies(43)
    assert not list(verify(tmp_path / "t"))
    if as_is:
        assert [u[4:6] for u in units(tmp_path / "t")][:40] == [u[4:6] for u in units(source)]


def test_new_messages_get_new_places(source: Path, tmp_path: Path) -> None:
    with make(tmp_path / "t") as store:
        store.put_inner_batch("B", [b"was", b"here"])
    assert main(["copy", str(source), str(tmp_path / "t")]) == 0
    with MessageStore.open(tmp_path / "t") as store:
        got = store.get("B", 0, 0, 5)
        assert [bytes(m.body) for m in got] == [b"was", b"here", b"0-0", b"1-0", b"1-1"]
        assert store.max_offset("B", 0) == 2 + len(bodies(40))
        outer = store.message_at(got[3].offset)
        assert (outer.properties["INNER_NUM"], outer.properties["INNER_BASE"], outer.queue_offset) == ("2", "3", 3)
        del got, outer
    assert not list(verify(tmp_path / "t"))


@pytest.mark.parametrize("as_is", [False, True])
def test_a_copy_that_is_broken_off_copies_each_record_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           as_is: bool) -> None:
    monkeypatch.setattr(messages, "PIECE", 600)
    monkeypatch.setattr(backup_source, "ROWS", 10)
    steps = 0

    def die(name: str) -> None:
        nonlocal steps
        steps += 1
        if steps % 2 == 0:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_step", die)
        for _ in range(3):
            with pytest.raises(Died):
                copy_messages(source, tmp_path / "t", as_is=as_is, **SMALL)
    copy_messages(source, tmp_path / "t", as_is=as_is, **SMALL)
    with MessageStore.open(tmp_path / "t") as store:
        assert read(store) == bodies(40)


def test_a_topic_with_other_queues_takes_no_batches(source: Path, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "t", **SMALL) as store:
        store.put("B", b"plain")
    with pytest.raises(errors.ConfigError, match="B has inner batches, and cannot get batch queues"):
        copy_messages(source, tmp_path / "t")
    with pytest.raises(errors.ConfigError, match="B has inner batches, and cannot get batch queues"):
        copy_messages(source, tmp_path / "u", compat="4.9", **SMALL)
    with MessageStore.open(tmp_path / "t") as store:
        assert (store.max_offset("B", 0), store.max_offset("P", 0)) == (1, 0)


def test_lines_out_and_in(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines"
    assert main(["export", str(source), str(lines)]) == 0
    assert main(["import", str(tmp_path / "t"), str(lines)]) == 0
    with MessageStore.open(tmp_path / "t") as store:
        assert read(store) == bodies(40) and store.max_offset("P", 0) == 40
    first = json.loads(lines.read_text().splitlines()[0])
    first["properties"]["INNER_NUM"] = "7"
    (tmp_path / "bad").write_text(json.dumps(first) + "\n")
    capsys.readouterr()
    assert main(["import", str(tmp_path / "u"), str(tmp_path / "bad")]) != 0
    assert "INNER_NUM is 7, and the body has 1 messages" in capsys.readouterr().err

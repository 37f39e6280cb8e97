"""A tool delivers no delayed message and deletes nothing by its age: it does what it was asked for, and the store's owner the
rest."""
import io as text_io
import sys

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.cli.main import main
from rmq_store.opened.tasks import tasks_of
from rmq_store.services.integrity.repair import repair
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 50, "index_entries_max": 400}
COMMANDS = [("put", "{}", "-t", "Other"), ("topics", "set", "{}", "-t", "Other"), ("topics", "delete", "{}", "-t", "Gone"),
            ("topics", "unused", "{}", "--keep", "Real"), ("topics", "expired", "{}"), ("clean", "{}", "--hours", "1000"),
            ("groups", "set", "{}", "-g", "G"), ("offsets", "commit", "{}", "-g", "G", "-t", "Gone", "-q", "0", "-i", "0"),
            ("repair", "{}"), ("repair", "{}", "--restore")]


@pytest.fixture
def root(tmp_path):
    """17 messages that are due since 2023, and a queue that is damaged."""
    probe = ProbeIo(keep_bytes=False)
    probe.set_clock(1_700_000_000_000, 0)
    path = tmp_path / "s"
    with MessageStore.open(path, _io=probe, delay="store_only", **SMALL) as store:
        for i in range(17):
            store.put("Real", b"%d" % i, delay_level=1 + i % 3)
        store.put("Gone", b"x")
    (path / "consumequeue/Gone/0/00000000000000000000").unlink()
    return path


def waiting(root):
    with MessageStore.open(root, readonly=True, **SMALL) as store:
        assert store.max_offset("Real", 0) == 0
        return sum(level.waiting for level in store.delay_levels())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(c for c in command if c != "{}"))
def test_nothing_is_delivered(root, monkeypatch, capsys, command):
    monkeypatch.setattr(sys, "stdin", text_io.TextIOWrapper(text_io.BytesIO(b"a line\n")))
    assert main([word.format(root) for word in command]) in (0, 1), capsys.readouterr().err
    assert waiting(root) == 17


def test_repair_of_a_damaged_store_delivers_nothing(root):
    result = repair(root, dry_run=False, open_store=MessageStore.open)
    assert [step.kind for step in result.steps] == ["rebuild"] and result.left == [] and waiting(root) == 17


def test_a_full_disk_refuses_what_a_tool_puts(root):
    with MessageStore.open(root, disk_full_pct=1, clean_interval_ms=100, _services=False, **SMALL) as store:
        until(lambda: store.disk_full)
        with pytest.raises(errors.ServiceNotAvailable):
            store.put("Real", b"x")


def test_what_a_service_would_do_is_done_by_who_serves(root):
    with MessageStore.open(root, delay="deliver", retention_hours=1, _services=False, **SMALL) as store:
        assert not {"cleaning", "writing delay offsets"} & {name for name, _, _ in tasks_of(store, False)}
        assert {"cleaning", "writing delay offsets"} <= {name for name, _, _ in tasks_of(store, True)}
        assert store._delay is None
    with MessageStore.open(root, **SMALL) as store:
        assert store.wait_for_message("Real", 0, 16, 60)

"""A log with records of a version of the format that nobody knows here: refused by name, and not one byte of it changes."""
import pytest

from rmq_store import MessageStore, errors, verify
from rmq_store.services.integrity.repair import repair
from tests.integrity.test_golden_silent import content

SMALL = {"segment_size_bytes": 1 << 18, "consumequeue_file_size_bytes": 2000, "index_slots": 50, "index_entries_max": 400}
NEWER = b"\xda\xa3\x20\xa9"


def rewritten(root, first, last=None, magic=NEWER):
    """2,000 messages, of which those from `first` to below `last` have this magic code."""
    with MessageStore.open(root, **SMALL) as store:
        for i in range(2000):
            store.put("T", b"m%d" % i, keys=str(i))
        places = [m.offset for m in store.scan()]
        size = store.options.segment_size_bytes
    for at in places[first:last]:
        path = root / "commitlog" / f"{at // size * size:020d}"
        with path.open("r+b") as file:
            file.seek(at % size + 4)
            file.write(magic)
    (root / "lock").unlink()
    return places


@pytest.mark.untraced       # files are changed behind the trace's back
@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("first", [0, 1, 700, 1998])
def test_it_is_refused_and_stays_as_it_is(tmp_path, first, crashed):
    root = tmp_path / "s"
    offset = rewritten(root, first)[first]
    if crashed:
        (root / "abort").touch()
    before = {name: was for name, was in content(root).items() if name != ".alloc"}
    for act in (lambda: MessageStore.open(root), lambda: repair(root, dry_run=True),
                lambda: repair(root, dry_run=False, open_store=MessageStore.open)):
        with pytest.raises(errors.UnknownVersion, match=rf"at offset {offset}: .*0xDAA320A9.*nothing was changed"):
            act()
        after = content(root)
        assert {name: now for name, now in after.items() if name not in ("lock", ".alloc")} == before
    assert [(f.kind, f.offset) for f in verify(root) if f.severity != "note"] == [("log_version", offset)]


@pytest.mark.untraced
def test_what_lies_in_front_is_read(tmp_path, caplog):
    rewritten(tmp_path / "s", 700)
    caplog.clear()
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        assert len(list(store.scan("T", 0))) == 700
    assert [r.event for r in caplog.records if r.levelname == "WARNING"] == ["VERSION_UNKNOWN"]


@pytest.mark.untraced
@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("first, last, magic", [(1999, 2000, NEWER), (500, 501, NEWER), (500, 502, b"\0\0\0\0")])
def test_rotten_bits_are_no_version(tmp_path, first, last, magic, crashed):
    root = tmp_path / "s"
    at = rewritten(root, first, last, magic)[first]
    data = (root / "commitlog" / f"{at // (1 << 18) * (1 << 18):020d}").read_bytes()[at % (1 << 18):]
    if crashed:
        (root / "abort").touch()
    with MessageStore.open(root) as store:
        assert len(list(store.scan("T", 0))) == first
    assert (root / ".salvage" / f"{at:020d}").read_bytes() == data.rstrip(b"\0")

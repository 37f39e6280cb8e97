"""What is made of a store whose log goes on with records of an unknown version must not look whole."""
import pytest

from rmq_store import MessageStore, backup, copy_messages, errors
from tests.recovery.test_other_versions import SMALL, rewritten

CODE = "0xDAA320A9"


@pytest.fixture(params=[(1, 18), (700, 18), (1998, 18), (100, 16), (700, 16)])
def source(request, tmp_path, monkeypatch):
    """A store, and how many of its 2,000 messages are of a version that is known; in one file, or the others in three more."""
    known, bits = request.param
    monkeypatch.setitem(SMALL, "segment_size_bytes", 1 << bits)
    rewritten(tmp_path / "s", known)
    return tmp_path / "s", known


@pytest.mark.untraced       # files are changed behind the trace's back
@pytest.mark.parametrize("as_is", [False, True])
def test_a_copy_says_so_and_has_what_lies_in_front(source, tmp_path, as_is):
    root, known = source
    for _ in range(2):          # a second call is told the same, and puts nothing twice
        with pytest.raises(errors.UnknownVersion, match=CODE):
            copy_messages(root, tmp_path / "new", as_is=as_is, **SMALL)
        with MessageStore.open(tmp_path / "new", readonly=True) as store:
            assert [bytes(m.body) for m in store.scan("T", 0)] == [b"m%d" % i for i in range(known)]


@pytest.mark.untraced
def test_a_backup_is_refused(source, tmp_path):
    root, _ = source
    with pytest.raises(errors.UnknownVersion, match=CODE):
        backup(root, tmp_path / "backups")
    assert not [path for path in (tmp_path / "backups").iterdir() if path.name[0] != "."]


@pytest.mark.untraced
@pytest.mark.parametrize("command", [("copy", "{root}", "{new}"), ("export", "{root}"), ("backup", "{root}", "{new}")])
def test_commands_end_with_2(source, tmp_path, rmqstore, command):
    root, known = source
    code, out, err = rmqstore(*(word.format(root=root, new=tmp_path / "new") for word in command))
    assert code == 2 and CODE in err
    assert command[0] != "export" or len(out.splitlines()) == known


@pytest.mark.untraced
def test_one_rotten_magic_code_is_none(tmp_path):
    """The last record alone: it ends the log, as anything that is no record does."""
    rewritten(tmp_path / "s", 1999)
    assert copy_messages(tmp_path / "s", tmp_path / "new", **SMALL).copied == 1999

"""What else may lie where a store has its files: directories, links, pipes, other lengths, strange names, no permission.

Each case is either fine, and then every message is there, or refused by an error that names the place, and by the exit code of
the command line; nothing that is not the store's is deleted or followed.
"""
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.cli.main import main
from rmq_store.codec._layout import CHECKPOINT_AT_FLUSHED
from rmq_store.errors import CorruptionError, LogDirectoryMissing, RmqStoreError, StoreRefusesToLoad

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 1000, "index_slots": 100, "index_entries_max": 1000}
COUNT = 300         # two queues of three files each, three files of the log


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("base") / "s"
    with MessageStore.open(root, **SMALL) as s:
        for i in range(COUNT):
            s.put("T", b"%d" % i * 200, queue_id=i % 2, keys=f"k{i}")
    return root


@pytest.fixture
def root(base, tmp_path):
    return shutil.copytree(base, tmp_path / "s")


def row(root, kind):
    """The files of the log, of a queue, or of the index, ascending."""
    return sorted((root / {"log": "commitlog", "queue": "consumequeue/T/0", "index": "index"}[kind]).iterdir())


def place(root, what):
    """ "commitlog", or "log 1", the second file of the log; "log -1", the last. """
    kind, _, number = what.partition(" ")
    return row(root, kind)[int(number)] if number else root / what


def put_in_place_of(path, kind):
    """Puts something else there; what was there goes outside of the store."""
    root = next(parent for parent in path.parents if parent.name == "s")
    outside = root.parent / f"outside-{path.name}"
    if path.is_dir():
        shutil.move(path, outside)
    elif path.exists():
        path.rename(outside)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "file":
        path.write_bytes(b"not a store's")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        if not outside.exists():
            outside.write_bytes(b"")
        path.symlink_to(outside)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        assert kind == "missing"
    return path


def look(store, count=COUNT):
    """Every message is there, in the log and in its queue."""
    assert sorted(int(bytes(m.body)[:len(bytes(m.body)) // 200]) for m in store.scan()) == list(range(count))
    for queue_id in (0, 1):
        assert store.max_offset("T", queue_id) == count // 2
        assert len(list(store.scan("T", queue_id))) == count // 2


def refused(root, readonly, kind, path, words, code, capsys):
    with pytest.raises(kind) as error:
        MessageStore.open(root, readonly=readonly)
    e = error.value
    assert str(path) == str(e.filename if isinstance(e, OSError) else e.path), e
    assert words in str(e)
    arguments = ["stat", str(root)] if readonly else ["put", str(root), os.devnull, "-t", "T"]
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert str(path) in said and words in said


SMALL_FILES = ["lock", "abort", "checkpoint"]
KINDS = {"directory": "is a directory", "link": "is a symbolic link", "dangling": "is a symbolic link", "pipe": "is a pipe"}


@pytest.mark.parametrize("name", [*SMALL_FILES, "config/consumerOffset.json"])
@pytest.mark.parametrize("kind", KINDS)
def test_in_the_place_of_a_small_file(root, capsys, name, kind):
    path = put_in_place_of(root / name, kind)
    if name.startswith("config/"):
        with MessageStore.open(root) as s:
            with pytest.raises(OSError, match=KINDS[kind]) as error:
                s.offsets.query("g", "T", 0)
            assert error.value.filename == str(path)
        assert main(["offsets", "show", str(root)]) == 3
        return
    refused(root, False, OSError, path, KINDS[kind], 3, capsys)
    if name == "checkpoint":
        refused(root, True, OSError, path, KINDS[kind], 3, capsys)
    else:
        with MessageStore.open(root, readonly=True) as s:
            look(s)
    if kind == "dangling":
        assert not (path.parent / "nowhere").exists()
    path.rmdir() if kind == "directory" else path.unlink()
    with MessageStore.open(root) as s:          # the refusal harmed nothing; without lock, abort or checkpoint
        look(s)


@pytest.mark.parametrize("name", SMALL_FILES)
def test_an_empty_small_file(root, name):
    (root / name).write_bytes(b"")
    for readonly in (True, False):
        with MessageStore.open(root, readonly=readonly) as s:
            look(s)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", ".alloc"])
@pytest.mark.parametrize("kind", ["file", "dangling"])
def test_in_the_place_of_a_directory(root, capsys, name, kind):
    path = put_in_place_of(root / name, kind)
    refused(root, False, NotADirectoryError, path, "is not a directory", 3, capsys)
    assert os.path.lexists(path)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "consumequeue/T", "consumequeue/T/0", "config"])
def test_directories_may_be_links(root, name):
    """As with upstream: parts of a store on another disk."""
    (root / "config").mkdir(exist_ok=True)
    put_in_place_of(root / name, "link")
    for readonly in (True, False):
        with MessageStore.open(root, readonly=readonly) as s:
            look(s)


def test_the_root_may_be_a_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    with MessageStore.open(tmp_path / "link") as s:
        look(s)


def test_what_is_behind_a_link_is_not_deleted(root, tmp_path, capsys):
    """All that lies in .alloc is deleted at open: not so what lies behind a link of that name, or in a directory in it."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_bytes(b"precious")
    shutil.rmtree(root / ".alloc")
    (root / ".alloc").symlink_to(tmp_path / "precious")
    refused(root, False, OSError, root / ".alloc", "is a symbolic link", 3, capsys)
    (root / ".alloc").unlink()
    (root / ".alloc").mkdir()
    (root / ".alloc/directory").symlink_to(tmp_path / "precious")
    (root / ".alloc/file").symlink_to(tmp_path / "precious/file")
    (root / ".alloc/more").mkdir()
    with MessageStore.open(root) as s:
        look(s)
    assert (tmp_path / "precious/file").read_bytes() == b"precious"
    assert [p.name for p in (root / ".alloc").iterdir()] == ["more"]


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("kind", ["directory", "link", "dangling", "pipe"])
@pytest.mark.parametrize("readonly", [True, False])
def test_in_the_place_of_a_file_of_the_log(root, capsys, number, kind, readonly):
    """Passed over it would hide its messages, and those behind it."""
    path = put_in_place_of(place(root, f"log {number}"), kind)
    refused(root, readonly, StoreRefusesToLoad, path, "a regular file", 2, capsys)
    assert os.path.lexists(path)


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize(("number", "length", "words"), [
    (0, 1000, "1000 bytes"), (0, 0, "0 bytes"), (1, 65535, "65535 bytes"), (1, 0, "0 bytes"), (1, 70_000, "70000 bytes"),
    (-1, 1000, "1000 bytes"), (-1, 65537, "65537 bytes")])
def test_a_file_of_the_log_of_another_length(root, capsys, number, length, words, readonly):
    path = place(root, f"log {number}")
    os.truncate(path, length)
    refused(root, readonly, StoreRefusesToLoad, path, words, 2, capsys)
    assert path.stat().st_size == length


def test_a_hole_in_the_log(root, capsys):
    row(root, "log")[1].unlink()
    for readonly in (True, False):
        refused(root, readonly, StoreRefusesToLoad, root / "commitlog", "name all of them in commitlog_path", 2, capsys)


@pytest.mark.parametrize("how", ["missing", "empty", "zeros"])
@pytest.mark.parametrize("clean", [True, False])
def test_the_last_file_of_the_log_is_gone(root, caplog, how, clean):
    """After a crash that is a normal end. In a store that was closed in order it is loss, and is said. A file that a checkpoint
    vouches for is no end at all: the open is refused."""
    last = row(root, "log")[-1]
    left = int(last.name)
    if how == "missing":
        last.unlink()
    else:
        last.write_bytes(b"" if how == "empty" else bytes(1 << 16))
    if not clean:
        (root / "abort").write_bytes(b"")
    lost = how != "zeros"
    if lost:
        with pytest.raises(LogDirectoryMissing, match="name all of them in commitlog_path"):
            MessageStore.open(root)
        if not clean:       # as of RocketMQ, or before the file was flushed: queues lead there
            with open(root / "checkpoint", "r+b") as file:
                file.seek(CHECKPOINT_AT_FLUSHED)
                file.write(bytes(16))
            with pytest.raises(LogDirectoryMissing, match="files up to"):
                MessageStore.open(root)
    with caplog.at_level("WARNING", "rmq_store"), MessageStore.open(root, commitlog_loss_accepted=lost) as s:
        count = len(list(s.scan()))
        assert 0 < count < COUNT and s.max_log_offset <= left
        assert s.max_offset("T", 0) + s.max_offset("T", 1) == count
        look(s, count) if count % 2 == 0 else None
        s.put("T", b"goes on", queue_id=count % 2)
    said = [r.event for r in caplog.records if hasattr(r, "event")]
    assert ("LOG_SHORT" in said) == clean == ("`rmqstore repair --restore`" in caplog.text)


@pytest.mark.parametrize("what", ["log", "queue", "index"])
def test_names_that_are_no_store_s_are_left_alone(root, what, caplog):
    directory = row(root, what)[0].parent
    planted = [directory / name for name in ("readme", "123", "0" * 19 + "x", "٠" * 20, "9" * 20, "lost+found")]
    for path in planted[:-1]:
        path.write_bytes(b"foreign")
    planted[-1].mkdir()
    for readonly in (True, False):
        with caplog.at_level("WARNING"), MessageStore.open(root, readonly=readonly) as s:
            look(s)
    assert all(path.exists() for path in planted)
    assert all(any(str(path) in r.getMessage() for r in caplog.records) for path in planted)


@pytest.mark.parametrize("what", ["queue", "index"])
@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("number", [0, -1])
def test_a_derived_file_of_another_length_is_named_and_made_again_by_repair(root, capsys, what, readonly, number):
    path = place(root, f"{what} {number}")
    os.truncate(path, 100)
    if what == "queue":
        refused(root, readonly, CorruptionError, path, "100 bytes", 4, capsys)
    else:
        with pytest.raises(CorruptionError, match="100 bytes") as error:
            MessageStore.open(root, readonly=readonly)
        assert error.value.path == str(path)
    assert main(["repair", str(root), "-o", "index_slots=100", "-o", "index_entries_max=1000"]) == 0
    with MessageStore.open(root, **SMALL) as s:
        look(s)
        assert s.query_key("T", "k7")


def test_a_gap_in_a_queue(root, capsys):
    row(root, "queue")[1].unlink()
    for readonly in (True, False):
        refused(root, readonly, CorruptionError, row(root, "queue")[1], "a gap", 4, capsys)
    assert main(["repair", str(root)]) == 0
    with MessageStore.open(root) as s:
        look(s)


def test_a_name_of_a_queue_s_file_that_leaves_no_room_for_more(root, capsys):
    for path in row(root, "queue")[1:]:
        path.unlink()
    size = row(root, "queue")[0].stat().st_size
    far = row(root, "queue")[0].rename(row(root, "queue")[0].with_name(f"{((1 << 63) - 1) // size * size - 2 * size:020d}"))
    for readonly in (True, False):
        refused(root, readonly, CorruptionError, far, "as name", 4, capsys)
    assert main(["repair", str(root)]) == 0
    with MessageStore.open(root) as s:
        look(s)


@pytest.mark.parametrize("whole_queue", [False, True])
def test_an_empty_last_file_of_a_queue_is_filled_again(root, whole_queue):
    """A store that was closed in order has none: what was in it lies in the log."""
    if whole_queue:
        for path in row(root, "queue")[1:]:
            path.unlink()
    os.truncate(row(root, "queue")[-1], 0)
    with MessageStore.open(root) as s:
        look(s)
        assert s.put("T", b"x", queue_id=0).queue_offset == COUNT // 2


@pytest.mark.parametrize("name", ["consumequeue/T", "consumequeue/T/0"])
def test_a_file_in_the_place_of_a_topic_or_queue(root, name):
    """A strange name is left alone until a message needs it; after a crash that is at once."""
    path = put_in_place_of(root / name, "file")
    with MessageStore.open(root, readonly=True) as s:
        assert len(list(s.scan())) == COUNT
    (root / "abort").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="move it away") as error:
        MessageStore.open(root)
    assert error.value.filename == str(path)
    path.unlink()
    with MessageStore.open(root) as s:
        look(s)


# ---- permissions: in a process that is not root

AS_NOBODY = """
import json, os, sys
from rmq_store import MessageStore
from rmq_store.cli.main import main
from rmq_store.codec._layout import CHECKPOINT_AT_FLUSHED
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
found = {}
for readonly in (True, False):
    try:
        with MessageStore.open(sys.argv[1], readonly=readonly) as s:
            found[str(readonly)] = ["fine", len(list(s.scan()))]
    except OSError as e:
        found[str(readonly)] = [type(e).__name__, e.filename]
    if readonly:
        found["stat"] = main(["stat", sys.argv[1], "--json"])
found["put"] = main(["put", sys.argv[1], os.devnull, "-t", "T"])
print(json.dumps(found))
"""


def as_nobody(root):
    """What a process without rights over other people's files finds."""
    root.chmod(0o777)
    for path in root.rglob("*"):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    os.chown(root, 65534, 65534)
    return run_as_nobody(root)


def run_as_nobody(root):
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(root)], capture_output=True, text=True, cwd="/",
                          env={**os.environ, "PYTHONPATH": os.getcwd()})
    if done.returncode and "ModuleNotFoundError" in done.stderr:
        pytest.skip("another user cannot read this checkout")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def public():
    """A directory that other users can reach, beside pytest's, which are their user's alone."""
    if os.geteuid() != 0:
        pytest.skip("to give files to another user needs root")
    found = Path(tempfile.mkdtemp(prefix="rmq_store-public-"))
    found.chmod(0o755)
    try:
        if not all(parent.stat().st_mode & 1 for parent in found.parents):
            pytest.skip(f"other users cannot reach {found.parent}")
        yield found
    finally:
        shutil.rmtree(found)


@pytest.mark.root
@pytest.mark.parametrize(("what", "mode", "write", "read"), [
    ("log 0", 0o000, "denied", "denied"), ("log 0", 0o400, "denied", "fine"), ("queue 0", 0o000, "denied", "denied"),
    ("index 0", 0o000, "denied", "denied"), ("commitlog", 0o000, "denied", "denied"),
    ("consumequeue/T", 0o000, "denied", "denied"), ("checkpoint", 0o000, "denied", "denied"),
    ("checkpoint", 0o444, "denied", "fine"), ("lock", 0o000, "denied", "fine"),
    ("commitlog", 0o555, "fine", "fine")])
def test_no_permission(base, public, what, mode, write, read):
    root = shutil.copytree(base, public / "s")
    path = place(root, what)
    path.chmod(mode)
    found = as_nobody(root)
    for outcome, expected in (("False", write), ("True", read)):
        if expected == "fine":
            assert found[outcome] == ["fine", COUNT], found
        else:
            kind, named = found[outcome]
            place_of = path.parent if what == "queue 0" else path       # of a queue's file its directory is named
            assert kind == "PermissionError" and named is not None and named.startswith(str(place_of)), found
    assert (found["put"], found["stat"]) == (0 if write == "fine" else 3, 0 if read == "fine" else 3)


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.EIO])
def test_a_queue_that_cannot_be_listed(root, monkeypatch, code, readonly):
    """One of those that are listed name by name, in a store whose sizes need not be looked for."""
    queue = root / "consumequeue/T/0"
    (queue / "odd").touch()
    scandir = os.scandir

    def refuse(path="."):
        if os.fsdecode(path) == str(queue):
            raise OSError(code, os.strerror(code), path)
        return scandir(path)
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(OSError) as error:
        MessageStore.open(root, readonly=readonly, **SMALL)
    assert (error.value.errno, error.value.filename) == (errno.EACCES if code == errno.EPERM else code, str(queue))


@pytest.mark.root
def test_a_root_that_is_somebody_else_s(public):
    (public / "theirs").mkdir(mode=0o755)
    found = run_as_nobody(public / "theirs/s")
    assert found["False"][0] == "PermissionError" and found["True"][0] == "FileNotFoundError"
    assert (found["put"], found["stat"]) == (3, 3)


def test_modes_of_what_a_store_makes(tmp_path):
    """As the umask says, and nothing that others may write."""
    before = os.umask(0o027)
    try:
        with MessageStore.open(tmp_path / "s", **SMALL) as s:
            s.put("T", b"x", keys="k")
            s.offsets.commit("g", "T", 0, 1)
    finally:
        os.umask(before)
    modes = {str(p.relative_to(tmp_path)): p.stat().st_mode & 0o777 for p in (tmp_path / "s").rglob("*")}
    assert len(modes) > 8
    assert {name for name, mode in modes.items() if mode not in (0o750, 0o640)} == set(), modes


def test_errors_of_opening_survive_pickling(root):
    import pickle

    os.truncate(row(root, "log")[0], 5)
    with pytest.raises(RmqStoreError) as error:
        MessageStore.open(root)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)

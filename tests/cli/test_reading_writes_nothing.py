"""Commands that read change nothing of a store: not one byte, name or time, whatever state it is in; and they work where
nothing can be written."""
import shutil
import subprocess

import pytest

from rmq_store import MessageStore
from tests.golden_store import unpack
from tests.images import take_image
from tests.integrity.test_golden_silent import content

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 50, "index_entries_max": 400}
COMMANDS = [
    ["readback", "{}"], ["get", "{}", "-t", "T", "-q", "0"], ["query", "{}", "-t", "T", "-k", "k1"], ["query", "{}", "--offset",
    "0"], ["stat", "{}"], ["stat", "{}", "--json"], ["tail", "{}", "-t", "T", "-q", "0", "-i", "0", "--for", "0.1"],
    ["dump", "{}/commitlog/00000000000000000000", "--count", "3"], ["dump", "{}/checkpoint"], ["verify", "{}"],
    ["verify", "{}", "--files"],
    ["scrub", "{}", "--rate", "0"], ["repair", "{}", "--dry-run"], ["repair", "{}", "--dry-run", "--restore"],
    ["clean", "{}", "--hours", "0", "--dry-run"], ["topics", "list", "{}"], ["topics", "delete", "{}", "-t", "T", "--dry-run"],
    ["topics", "expired", "{}", "--dry-run"], ["topics", "unused", "{}", "--keep", "U", "--dry-run"], ["groups", "list", "{}"],
    ["filters", "list", "{}"], ["table", "{}", "T"], ["topics", "compact", "{}", "--dry-run"],
    ["transactions", "{}"],
    ["timers", "{}"],
    ["offsets", "show", "{}"], ["offsets", "lag", "{}", "-g", "G"], ["config", "show", "{}"], ["doctor", "{}", "--no-measure"],
    ["export", "{}"], ["export", "{}", "--all"], ["copy", "{}", "{}-as-new"], ["copy", "{}", "{}-as-is", "--as-is"],
    ["backup", "{}", "{}-backups"]]
STATES = ["closed", "killed", "no_queues", "no_index", "cut", "rotten", "empty_file", "v5-crash-live", "v4-crash-garbagetail"]


def name_of(command):
    return "-".join(word for word in command if "{" not in word).replace("---", "-")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Stores in each of STATES. Nobody looks at them but by a copy."""
    base = tmp_path_factory.mktemp("images")
    for state in STATES:
        root = base / state
        if state.startswith("v"):
            shutil.move(unpack(state, base / "golden").store, root)
            continue
        with MessageStore.open(root, **SMALL) as store:
            for i in range(1500):
                store.put("TU"[i % 2], b"message %d" % i, keys=f"k{i}")
            store.offsets.commit("G", "T", 0, 5)
            last = store.put("T", b"last" * 100, delay_level=1)
            store.flush()
            store.wait_dispatched(10)
            if state == "killed":
                take_image(root, base / "image")
        if state == "killed":
            shutil.rmtree(root)
            (base / "image").rename(root)
        break_it(root, state, last)
    return base


def break_it(root, state, last):
    files = sorted((root / "commitlog").iterdir())
    newest = files[-1] if int(files[-1].name) <= last.offset else files[-2]
    if state == "no_queues":
        shutil.rmtree(root / "consumequeue")
    elif state == "no_index":
        shutil.rmtree(root / "index")
    elif state in ("cut", "rotten"):
        at = last.offset - int(newest.name) if state == "cut" else 30_000
        data = bytearray((newest if state == "cut" else files[0]).read_bytes())
        data[at:at + 200] = bytes(200) if state == "cut" else b"\xff" * 200
        (newest if state == "cut" else files[0]).write_bytes(data)
        (root / "abort").touch()
    elif state == "empty_file":
        (root / "commitlog" / f"{int(files[-1].name) + (1 << 16):020d}").touch()
        (root / "abort").touch()


# What a command may refuse: a topic that is not in this state of the store, a log that its next writer will cut.
REFUSED = ("topic T does not exist", "cannot be followed yet")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_nothing_changes(images, tmp_path, rmqstore, command, state):
    root = tmp_path / "s"
    take_image(images / state, root)
    before = content(root)
    code, _, err = rmqstore(*[word.format(root) for word in command])
    assert (code in (0, 1, 4) or any(words in err for words in REFUSED)) and "Traceback" not in err, err
    assert content(root) == before


@pytest.fixture
def read_only(images, tmp_path):
    """The stores on a file system that is mounted for reading."""
    place = tmp_path / "ro"
    place.mkdir()
    for step in (["mount", "--bind", images, place], ["mount", "-o", "remount,bind,ro", place]):
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            subprocess.run(["umount", place], capture_output=True)
            pytest.skip(f"mount: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_where_nothing_can_be_written(read_only, tmp_path, rmqstore):
    wrong = []
    for state in STATES:
        for command in COMMANDS:
            target = tmp_path / "made" / f"{state}-{name_of(command)}"        # what copies and backups write lies elsewhere
            target.parent.mkdir(exist_ok=True)
            words = [str(target) if word.startswith("{}-") else word.format(read_only / state) for word in command]
            code, _, err = rmqstore(*words)
            if (code not in (0, 1, 4) and not any(words in err for words in REFUSED)) or "Read-only" in err:
                wrong.append((name_of(command), state, code, err[-300:]))
    assert wrong == []

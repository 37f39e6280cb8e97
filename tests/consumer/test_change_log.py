"""A table of many entries: a change is a line beside the file, and durable as if the file had it."""
import errno
import json
import shutil
import threading

import pytest

from rmq_store import errors
from rmq_store.base.io.files import _SYSTEM, ControlFiles
from rmq_store.services.consumer import change_log, table
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.consumer.tables import GroupTable, TopicTable

MANY = table.LOG_FROM + 5


def opened(root, files=_SYSTEM, name="topics.json", kind=TopicTable, readonly=False):
    root.mkdir(exist_ok=True)
    return kind(ConfigFile(files, str(root), name), compat="5.x", readonly=readonly)


def filled(root, count=MANY, field="perm", **more):
    made = opened(root, **more)
    for i in range(count):
        made.set(f"T{i}", **{field: 6})
    made.flush()
    return made


def killed(root, to):
    """What another process finds."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(root, to)
    return opened(to)


class Counting(ControlFiles):
    """files of the system that count the bytes which they write, and call `before` ahead of each change of a name."""

    def __init__(self):
        super().__init__(_SYSTEM.table)
        self.written = 0
        self.before = lambda: None
        self.rename, self.unlink = (self._first(call) for call in (self.rename, self.unlink))

    def _first(self, call):
        def changed(*arguments):
            self.before()
            call(*arguments)
            self.before()
        return changed

    def write(self, fd, offset, data):
        self.before()
        super().write(fd, offset, data)
        self.written += len(data)
        self.before()


@pytest.mark.parametrize("kind, name, field", [(TopicTable, "topics.json", "perm"),
                                               (GroupTable, "subscriptionGroup.json", "retryMaxTimes")])
def test_one_more_entry_writes_as_much_whatever_there_is(tmp_path, kind, name, field):
    took = []
    for count in (MANY, 8 * MANY):
        files = Counting()
        made = filled(tmp_path / str(count), count, field, files=files, kind=kind, name=name)
        before = files.written
        for i in range(10):
            made.set(f"New{i}", **{field: 4})
            made.flush()
        took.append(files.written - before)
    assert took[1] - took[0] < 1000 and took[1] < 10_000


def test_a_killed_process_loses_no_change(tmp_path):
    made = filled(tmp_path / "s")
    version = made.version()
    made.set("New", perm=4)
    made.set("T1", perm=2)
    made.remove("T2")
    made.flush()
    assert not {"New"} & json.loads((tmp_path / "s/config/topics.json").read_text())["topicConfigTable"].keys()
    found = killed(tmp_path / "s", tmp_path / "c")
    assert found.entries() == made.entries()
    assert found.version() == made.version() != version
    assert found.get("New")["perm"] == 4 and found.get("T1")["perm"] == 2 and found.get("T2") is None
    assert opened(tmp_path / "c", readonly=True).entries() == made.entries()
    found.end(write=True)
    assert sorted(p.name for p in (tmp_path / "c/config").iterdir()) == ["topics.json", "topics.json.bak"]
    assert json.loads((tmp_path / "c/config/topics.json").read_text())["topicConfigTable"] == made.entries()


def test_killed_at_every_change(tmp_path):
    """Whatever was flushed is there, also when another process takes over in the middle of settling and dies as well."""
    files = Counting()
    made = filled(tmp_path / "s", files=files)
    sure, states, asked = {}, 0, [False]

    def look():
        nonlocal states
        if asked[0]:
            return
        asked[0], states = True, states + 1
        found = killed(tmp_path / "s", tmp_path / "c")
        for name, perm in sure.items():
            entry = found.get(name)
            assert (entry and entry["perm"]) == perm, (name, states)
        found.set("Another", perm=6)
        found.flush()
        again = killed(tmp_path / "c", tmp_path / "c2")
        assert again.get("Another") and all((e := again.get(n)) == (e and e | {"perm": p}) for n, p in sure.items() if p)
        asked[0] = False

    files.before = look
    for step in range(6):
        doubt = f"N{step}", "T1", "T2"
        for name in doubt:
            sure.pop(name, None)
        made.set(f"N{step}", perm=6)
        made.set("T1", perm=step)
        if step % 2:
            made.set("T2", perm=step)
        else:
            made.remove("T2")
        made.flush()
        sure |= {f"N{step}": 6, "T1": step, "T2": step if step % 2 else None}
        if step in (2, 3, 5):
            made.settle()
    made.end(write=True)
    look()
    assert states > 30


def test_changes_while_the_file_is_written_stay_in_the_log(tmp_path):
    files = Counting()
    made = filled(tmp_path / "s", files=files)
    made.set("Before", perm=6)
    made.flush()
    done = []

    def beside():
        if not done:
            done.append(True)
            other = threading.Thread(target=lambda: (made.set("Beside", perm=4), made.set("T1", perm=2), made.flush()))
            other.start()
            other.join(20)
            assert not other.is_alive()         # it does not wait for the file

    files.before = beside
    made.settle()
    assert done and made.unsettled
    assert "Before" in json.loads((tmp_path / "s/config/topics.json").read_text())["topicConfigTable"]
    found = killed(tmp_path / "s", tmp_path / "c")
    assert found.entries() == made.entries() and found.get("T1")["perm"] == 2


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_line_that_was_cut_off_counts_for_nothing(tmp_path, cut):
    made = filled(tmp_path / "s")
    for name in ("A", "B"):
        made.set(name, perm=4)
        made.flush()
    path = tmp_path / "s/config/topics.changes"
    path.write_bytes(path.read_bytes()[:-cut])
    found = killed(tmp_path / "s", tmp_path / "c")
    assert found.get("A") and found.get("B") is None


def test_a_damaged_line_is_told(tmp_path):
    made = filled(tmp_path / "s")
    for name in ("A", "B"):
        made.set(name, perm=4)
        made.flush()
    path = tmp_path / "s/config/topics.changes"
    path.write_bytes(path.read_bytes().replace(b'"topicName":"A"', b'"topicName":"X"'))
    with pytest.raises(errors.ConfigFileCorrupted, match=r"topics\.changes"):
        opened(tmp_path / "s")


def test_a_broker_of_java_that_took_over_keeps_what_it_wrote(tmp_path):
    """It does not know the log: what it lacks comes back, what it changed stays, what it has stays."""
    made = filled(tmp_path / "s")
    made.set("Ours", perm=4)
    made.set("T1", perm=2)
    made.remove("T2")
    made.flush()
    path = tmp_path / "s/config/topics.json"
    content = json.loads(path.read_text())
    content["dataVersion"] |= {"counter": 99, "timestamp": 1}
    content["topicConfigTable"]["Theirs"] = content["topicConfigTable"]["T3"] | {"topicName": "Theirs"}
    path.write_text(json.dumps(content))
    found = opened(tmp_path / "s")
    assert found.get("Ours")["perm"] == 4 and found.get("Theirs")
    assert found.get("T1")["perm"] == 6 and found.get("T2")


def test_a_full_disk_is_named_and_heals(tmp_path):
    files = Counting()
    made = filled(tmp_path / "s", files=files)
    sync = files.sync

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    files.sync = full
    made.set("A", perm=4)
    with pytest.raises(errors.DiskFull, match=r"topics\.changes") as raised:
        made.flush()
    assert "make room" in str(raised.value)
    files.sync = sync
    made.flush()                # of the file, and not the same sync again
    assert killed(tmp_path / "s", tmp_path / "c").get("A")["perm"] == 4
    assert not (tmp_path / "s/config/topics.changes").exists()


def test_who_asks_for_changes_gets_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "NAMES_MAX", 5)
    made = opened(tmp_path)
    made.set("A", perm=4)
    seen, changed = made.changes_since(-1)
    assert (seen, changed) == (1, None)
    made.set("B", perm=4)
    made.remove("A")
    assert made.changes_since(seen) == (3, {"A": None, "B": made.get("B")})
    assert made.changes_since(3) == (3, {})
    for i in range(9):
        made.set(f"C{i}", perm=4)
    assert made.changes_since(seen)[1] is None
    now, _ = made.changes_since(-1)
    assert made.replace(made.content() | {"dataVersion": {"counter": 7, "timestamp": 7}})
    assert made.changes_since(now) == (now + 1, None)


def test_a_compaction_topic_is_in_the_file_at_once(tmp_path):
    """Readers beside this process look at the file."""
    made = filled(tmp_path / "s")
    made.set("C", perm=6, attributes={"cleanup.policy": "COMPACTION"})
    made.flush()
    assert "C" in json.loads((tmp_path / "s/config/topics.json").read_text())["topicConfigTable"]
    assert made.compacted() == {"C"}
    made.set("C", attributes={})
    assert made.compacted() == frozenset()


def test_a_log_of_64_mib_becomes_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "SIZE_MAX", 2000)
    made = filled(tmp_path / "s")
    for i in range(40):
        made.set(f"New{i}", perm=4)
        made.flush()
        path = tmp_path / "s/config/topics.changes"
        assert not path.exists() or path.stat().st_size < 3000
    assert change_log.SIZE_MAX == 64 << 20


def test_an_open_and_a_close_write_the_files(tmp_path):
    """Of a killed process: a RocketMQ broker reads the files alone."""
    from rmq_store import MessageStore

    root = tmp_path / "s"
    MessageStore.open(root, profile="test").close()
    made = filled(root, kind=GroupTable, name="subscriptionGroup.json", field="retryMaxTimes"), filled(root)
    for one in made:
        one.set("New")
        one.flush()
    assert len(list((root / "config").glob("*.changes"))) == 2
    MessageStore.open(root, profile="test", readonly=True).close()
    assert len(list((root / "config").glob("*.changes"))) == 2
    MessageStore.open(root, profile="test").close()
    assert not list((root / "config").glob("*.changes"))
    for name, key in (("topics.json", "topicConfigTable"), ("subscriptionGroup.json", "subscriptionGroupTable")):
        assert "New" in json.loads((root / "config" / name).read_text())[key]


def test_a_backup_has_what_is_in_the_log(tmp_path):
    from rmq_store import MessageStore, backup

    with MessageStore.open(tmp_path / "s", profile="test") as store:
        for i in range(MANY):
            store.topic_table.set(f"T{i}", perm=6)
        store.topic_table.flush()
        store.topic_table.set("New", perm=4)
        store.topic_table.flush()
        assert store.topic_table.unsettled
        made = backup(tmp_path / "s", tmp_path / "b").path
    with MessageStore.open(made, profile="test") as store:
        assert store.topic_table.get("New")["perm"] == 4

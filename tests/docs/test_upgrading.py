"""docs/upgrading.md: what it claims of versions and of our own files."""
import ast
import pathlib
import re
import shutil

import pytest

from rmq_store import MessageStore, copy_messages, errors, verify
from rmq_store.services.backup import content
from rmq_store.services.cleaning.removing import FILE
from rmq_store.services.integrity import manifest
from rmq_store.services.statistics import live

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrading.md").read_text()
OURS = {".alloc", manifest.DIRECTORY, ".salvage", content.JOURNALS, ".spark", pathlib.Path(live.live_path("")).name,
        f"config/{FILE}", content.LIST}
UPSTREAM = {"commitlog", "consumequeue", "consumequeue_ext", "index", "config", "checkpoint", "abort", "lock"}
SMALL = {"segment_size_bytes": 1 << 17, "index_slots": 100, "index_entries_max": 1000, "consumequeue_file_size_bytes": 2000}


def functions_of(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_the_tests_that_it_names_are_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 10 and "TEST" not in PAGE
    for file, name in named:
        assert name in functions_of(ROOT / file), f"{file} has no {name}"
    for case in re.findall(r"\(`(v\d+-\w+)`\)", PAGE):
        assert (ROOT / "tests" / "golden" / case / "case.json").exists()


def test_all_that_is_ours_is_in_the_table():
    listed = set(re.findall(r"^\| `([\w./]+?)/?`", PAGE.partition("## Files of this library alone")[2], re.MULTILINE))
    assert listed == OURS
    # names with a dot that stand in the code are all known here
    found = {name for path in (ROOT / "rmq_store").rglob("*.py") if path.parent.name != "bench" for name in
             re.findall(r'(?:join\((?:self\.)?_?root, |DIRECTORY = |SALVAGE = |LIST = )"(\.\w[\w.]*)"', path.read_text())}
    assert found and found <= OURS | {".dockerenv"}, found - OURS      # of a machine, not of a store


@pytest.mark.untraced
def test_messages_need_none_of_it(tmp_path):
    """All that can be there at once is there, and goes; a following life makes nothing of it but what is listed."""
    root = tmp_path / "s"
    with MessageStore.open(root, stats_file_interval_ms=100, manifest_interval_ms=1, **SMALL) as store:
        store.put_many("gone", [b"x" * 300] * 10)
        store.put_many("T", [b"%d" % i + b"x" * 300 for i in range(1500)], wait=True)
        store.wait_dispatched(10)
        store.delete_topics("gone")
    with MessageStore.open(tmp_path / "other", **SMALL) as store:
        store.put("U", b"moved", wait=True)
    copy_messages(tmp_path / "other", root)
    (root / ".salvage").mkdir(exist_ok=True)
    names = {path.name for path in root.iterdir()}
    assert names <= UPSTREAM | OURS, names
    assert names >= {".moving"} and (root / "config" / FILE).exists()
    for name in OURS:
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    # what removedQueues.json was for
    assert {finding.topic for finding in verify(root) if finding.severity != "note"} == {"gone"}
    with MessageStore.open(root) as store:
        assert [bytes(m.body)[:-300] for m in store.scan("T", 0)] == [b"%d" % i for i in range(1500)]
        assert [bytes(m.body) for m in store.scan("U", 0)] == [b"moved"]


def test_4_9_gets_no_record_of_version_2(tmp_path):
    topic = "t" * 128
    with MessageStore.open(tmp_path / "4", compat="4.9", topic_size_max_bytes=255, **SMALL) as store:
        with pytest.raises(errors.MessageIllegal, match=r"compat=.5\.x|127"):
            store.put(topic, b"x")
        with pytest.raises(errors.MessageIllegal):
            store.put("%RETRY%" + topic, b"x")
        store.put("t", b"x", wait=True)
    with MessageStore.open(tmp_path / "5", topic_size_max_bytes=255, **SMALL) as store:
        store.put(topic, b"x", wait=True)
        store.put("t", b"x", wait=True)
    with MessageStore.open(tmp_path / "5", compat="4.9", readonly=True) as store:      # compat says nothing about reading
        assert set(store.topics()) == {topic, "t"}
    heads = {n: (tmp_path / n / "commitlog" / f"{0:020d}").read_bytes()[4:8].hex().upper() for n in "45"}
    assert [f"0x{heads[n]}" for n in "45"] == ["0xDAA320A7", "0xDAA320AB"] and all(f"0x{h}" in PAGE for h in heads.values())


def test_rocksdb_is_refused():
    from rmq_store.config.load import resolve

    with pytest.raises(errors.ConfigError, match="storeType"):
        resolve(None, {"storeType": "defaultRocksDB"})

"""A journal that no commit has written: it is refused by name, and nothing outside of the store's own directories goes."""
import json

import pytest

from rmq_store.errors import CorruptionError
from rmq_store.spark import staging

GOOD = {"app": "a", "done": 1, "pending": None, "begin": 0, "job": "0" * 32, "parts": []}


def write(root, entry):
    path = root / ".spark" / "journal" / "x.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(entry if isinstance(entry, str) else json.dumps(entry))
    return path


@pytest.mark.parametrize("change", [
    {"job": "../../precious"}, {"job": "/precious"}, {"job": ".."}, {"job": "."}, {"job": ""}, {"job": "journal"}, {"job": 7},
    {"job": "a\0b"}, {"app": None}, {"done": "1"}, {"pending": 1.5}, {"begin": []}, {"parts": None}, {"parts": [7]},
    {"parts": [{"path": 1}]}, {"query": 7}, {"log": 7}, {"once": "yes"}, {"records": "1"}, {"skip": [1]}, {"shards": [1]},
    {"parts": [{"path": "/etc/passwd", "size": 1, "records": 1, "crc": 1}]},
    {"parts": [{"path": ".spark/job/../../../precious", "size": 1, "records": 1, "crc": 1}]},
    {"parts": [{"path": "p", "size": "1", "records": 1, "crc": 1}]}], ids=str)
def test_what_no_commit_wrote_is_refused(tmp_path, change):
    path = write(tmp_path, GOOD | change)
    with pytest.raises(CorruptionError) as error:
        list(staging.journals(tmp_path))
    assert str(error.value.path) == str(path)


@pytest.mark.parametrize("text", ["[]", "7", "null", "[" * 100_000, "{"], ids=lambda t: t[:9])
def test_what_is_no_journal_is_refused(tmp_path, text):
    write(tmp_path, text)
    with pytest.raises(CorruptionError):
        list(staging.journals(tmp_path))


def test_a_good_one_is_read(tmp_path):
    write(tmp_path, GOOD)
    assert list(staging.journals(tmp_path)) == [GOOD]


def test_a_commit_removes_nothing_outside(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    write(tmp_path / "s", GOOD | {"pending": 2, "job": "../../precious"})
    with pytest.raises(CorruptionError):
        staging.commit_staged(str(tmp_path / "s"), "other", 0, [])
    assert (precious / "data").read_text() == "x"

"""The reasons why a record is bad: one list for C and Python, and one name in recovery, the walk, verify and repair."""
import re
from pathlib import Path

import pytest

import rmq_store.codec
from rmq_store import MessageStore, verify
from rmq_store.access.bulk._columns import BAD_TEXTS, Split
from rmq_store.base.io._io import IoTable
from rmq_store.codec.bad import FINDINGS, Bad
from rmq_store.log.recovery._scan import REASONS
from rmq_store.services.integrity._notes import KINDS as NOTES
from rmq_store.services.integrity.findings import KINDS, SEVERITY

CODEC = Path(rmq_store.codec.__path__[0])


def test_python_and_c_have_the_same_numbers():
    text = (CODEC / "_bad.pxd").read_text(encoding="utf-8")
    found = {name: int(number) for name, number in re.findall(r"^    BAD_(\w+) = (\d+)", text, re.M)}
    assert found == {"NOT": 0} | {bad.name: bad.number for bad in Bad}
    assert [bad.number for bad in Bad] == list(range(1, len(Bad) + 1))


def test_every_reader_takes_the_texts_from_the_list():
    assert (None, *(bad.text for bad in Bad)) == BAD_TEXTS
    assert REASONS[2:] == tuple(bad.text for bad in Bad)[1:]
    assert len({bad.text for bad in Bad}) == len(Bad)
    root = CODEC.parent
    for path in (p for p in root.rglob("*") if p.suffix in (".py", ".pyx", ".pxd") and p.name != "bad.py"):
        text = path.read_text(encoding="utf-8")
        assert not [bad for bad in Bad if f'"{bad.text}"' in text], path


def test_every_finding_is_in_the_one_list():
    assert set(FINDINGS.values()) <= set(KINDS) and set(NOTES) <= set(KINDS)
    assert {"log_hole", "body_crc", "record_crc", "record_header"} == set(FINDINGS.values())
    assert all(SEVERITY[bad.finding] == "corrupt" for bad in Bad)
    assert all(kind.meaning.endswith(".") for kind in KINDS.values()) and all(bad.meaning.endswith(".") for bad in Bad)


@pytest.mark.parametrize(("place", "bad"), [("body", Bad.BODY_CRC), ("properties", Bad.RECORD_CRC), ("queue id", Bad.FIELD)])
def test_walk_and_verify_say_the_same_of_a_record(tmp_path, place, bad):
    root = tmp_path / "s"
    with MessageStore.open(str(root), profile="test", record_crc=place != "queue id") as store:
        first = store.put("T", b"body" * 8, properties={"name": "value"}, wait=True)
        store.put("T", b"another", wait=True)
    (path,) = (root / "commitlog").iterdir()
    data = bytearray(path.read_bytes())
    if place == "queue id":
        data[12:16] = (-5).to_bytes(4, "big", signed=True)
    else:
        data[data.index({"body": b"body", "properties": b"value"}[place])] ^= 1
    path.write_bytes(data)
    assert first.offset == 0
    split = Split(path, 0, 0, len(data), newest=True, verify="crc", io=IoTable())
    while not split.done:
        split.skip()
    assert [(region.begin, region.kind) for region in split.take_bad()] == [(0, bad.text)]
    kinds = {finding.kind for finding in verify(str(root)) if finding.severity == "corrupt"}
    assert kinds == {bad.finding}

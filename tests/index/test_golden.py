"""Goal: our index files are Java's, and our answers are Java's.

Method: the log of each golden store is decoded and indexed anew; the files equal Java's byte for byte on the used part. Both
the new files and Java's own answer every recorded query as the real store did.
"""
import pytest

from tests.index.index_data import files_of, put_record

CASES = [f"{v}-{kind}" for v in ("v4", "v5") for kind in ("plain", "roll", "batch", "ipv6", "delaytx")]
CASES += ["v4-cqext", "v4-crash-clean", "v5-longtopic", "v5-propcrc"]


@pytest.mark.parametrize("name", CASES)
def test_rebuilt_files_equal_javas(indexed, make, name):
    g = indexed(name)
    java = files_of(g.index_dir, g.slots)
    index = make(g.slots, g.entries)
    g.put_all(index)
    ours = files_of(index.dir, g.slots)
    assert index.file_count == len(ours) == len(java) > 0
    assert len(ours) > 1 or not name.endswith("roll")
    for mine, theirs in zip(ours, java, strict=True):
        assert len(mine.data) == len(theirs.data) == index.file_size
        assert mine.used == theirs.used


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("source", ["java", "ours"])
def test_queries_answer_as_the_real_store(indexed, make, name, source):
    g = indexed(name)
    if source == "java":
        index = make(g.slots, g.entries, dir=g.index_dir)
    else:
        index = make(g.slots, g.entries)
        g.put_all(index)
    if name.startswith("v5"):
        # The answers are those of a store that had been opened again: 5.x then dispatches what lies behind the last entry.
        queued = max(e["phyOffset"] for e in g.expected if e["t"] == "msg")
        for record in g.records:
            if record.physical_offset > queued:
                put_record(index, record)
    asked = [e for e in g.expected if e["t"] == "key"]
    assert len(asked) > 100
    for e in asked:
        answer = index.query_message(e["topic"].encode(), e["key"].encode(), min(e["maxNum"], 64), e["begin"], e["end"],
                                     g.offsets, g.times)
        assert answer == (e["hits"], e["indexLastTs"], e["indexLastPhy"]), e


@pytest.mark.parametrize("name", ["v4-roll", "v5-plain"])
def test_dispatch_again_changes_nothing_but_the_last_record(indexed, make, name):
    g = indexed(name)
    index = make(g.slots, g.entries)
    g.put_all(index)
    before = {(h, p) for f in files_of(index.dir, g.slots) for h, p, _, _ in f.entries()}
    again = make(g.slots, g.entries, dir=index.dir)
    g.put_all(again)
    files = files_of(index.dir, g.slots)
    assert {(h, p) for f in files for h, p, _, _ in f.entries()} == before
    assert again.end_physical == files[-1].end_physical == max(p for _, p in before)

"""Splits of a log: every size from one byte up gives the same records, whatever lies in bodies and behind the end."""
from pathlib import Path

import pytest

from rmq_store import MessageStore, SqlFilter
from rmq_store.access.bulk._columns import Split
from rmq_store.access.bulk._rebuild import queue_part
from rmq_store.errors import ConfigError
from tests import golden_store
from tests.bulk.conftest import rows_of

GOOD = [c for c in golden_store.cases() if "crash" not in c]
NARROW = ("physicalOffset", "storeSize")


def offsets(split):
    rows, bad = rows_of(split, ("physicalOffset",))
    return [r["physicalOffset"] for r in rows], bad


def chained(log_file, step, **more):
    """What all splits of `step` bytes find, in order; and that each begins where the one before it ended."""
    found, regions = [], []
    position = None
    for begin in range(log_file.start, log_file.start + log_file.size, step):
        split = log_file.split(begin, begin + step, **more)
        rows, bad = rows_of(split, NARROW)
        regions += bad
        if rows:
            if position is not None and not regions:
                assert rows[0]["physicalOffset"] == position
            assert split.first == rows[0]["physicalOffset"]
            position = rows[-1]["physicalOffset"] + rows[-1]["storeSize"]
        found += [r["physicalOffset"] for r in rows]
    return found, regions


@pytest.mark.parametrize("name", GOOD)
def test_golden_logs_as_columns_equal_readback(golden, name):
    case = golden(name)
    paths = sorted((case.store / "commitlog").iterdir())
    rows = []
    for path in paths:
        size = path.stat().st_size
        found, bad = rows_of(Split(path, int(path.name), int(path.name), int(path.name) + size, newest=path == paths[-1],
                                   verify="crc"), max_rows=7)
        assert not bad
        rows += found
    by_place = {r["physicalOffset"]: r for r in rows}
    expected = [line for line in case.expected() if line["t"] == "log" and line["kind"] != "blank"]
    assert [r["physicalOffset"] for r in rows] == [line["phyOffset"] for line in expected]
    seen = 0
    for line in case.expected():
        if line["t"] == "msg" or (line["t"] == "log" and line["kind"] == "unqueued"):
            row = by_place[line["phyOffset"]]
            got = (row["topic"], row["queueId"], row["queueOffset"], row["flag"], row["sysFlag"], row["body"].hex(),
                   row["properties"], row["propertiesRaw"].hex(), row["bornTimestamp"], row["storeTimestamp"],
                   row["storeSize"], row["reconsumeTimes"], row["preparedTransactionOffset"], row["bodyCrc"])
            assert got == (line["topic"], line["queueId"], line["queueOffset"], line["flag"], line["sysFlag"], line["body"],
                           line["props"], line["propsHex"], line["bornTs"] * 1000, line["storeTs"] * 1000, line["size"],
                           line["reconsume"], line["prepOffset"], line["bodyCrc"])
            assert row["tags"] == line["props"].get("TAGS") and row["keys"] == line["props"].get("KEYS")
            assert row["msgId"] == line["props"].get("UNIQ_KEY")
            ip, _, port = row["bornHost"].rpartition(":")
            assert int(port) == line["bornPort"] and ip.startswith("[") == (":" in line["bornIp"])
            seen += 1
    assert seen == len(rows) and seen > 10


@pytest.fixture
def busy(log):
    """A small file with records of many sizes, bodies with images of records, and an end-of-file record."""
    file = log(size=4096)
    for i in range(6):
        file.add(bytes([i]) * (i * 37 % 90), queue_offset=i)
    at = file.start + len(file.data)
    file.add(b"before" + file.image(at + 88 + 6) + b"behind", topic="Real")           # an image of exactly its future place
    at = file.start + len(file.data)
    file.add(file.image(at + 88) + file.image(17), topic="Real")                      # one of its place, one of another
    at = file.start + len(file.data)
    inside = file.image(at + 88, size=120)
    file.add(inside + file.image(at + 88 + 120, size=130), topic="Real")              # images that chain
    at = file.start + len(file.data)
    file.add(b"\xda\xa3\x20\xa7" * 20 + b"\xcb\xd4\x31\x94" * 5, topic="Real")        # naked magic codes
    for i in range(5):
        file.add(b"x" * i, topic="After")
    file.end()
    file.write()
    return file


@pytest.mark.parametrize("mapped", [True, False])
def test_every_split_size_gives_the_same_records(busy, mapped):
    whole, bad = offsets(busy.split())
    assert whole == busy.places and not bad
    for step in (1, 2, 3, 7, 8, 31, 91, 92, 100, 128, 255, 1000, 4095, 4096, 5000):
        found, regions = chained(busy, step, mapped=mapped)
        assert found == busy.places and not regions, step


def test_a_chain_of_images_up_to_the_next_record_fools_no_split(log):
    """The last image in the body swallows the real record's own topic and properties and ends exactly where it does."""
    file = log(size=4096)
    file.add()
    at = file.start + len(file.data)
    first = file.image(at + 88, size=200)
    # Behind the body lie topicLength, "Real" and propertiesLength: seven bytes that the last image takes for its properties.
    last = file.image(at + 88 + 200, properties=b"NAME\x01value\x027 bytes")[:-7]
    file.add(first + last, topic="Real")
    assert len(file.data) == at + 88 + 200 + len(last) + 7
    file.add()
    file.write()
    for step in (1, 5, 100, 300):
        assert chained(file, step, newest=True)[0] == file.places
    # A split that does not look back over the whole record is fooled: it is the looking back that protects.
    assert offsets(file.split(at + 288, newest=True, max_record=200))[0] == [at + 288, file.places[2]]


def test_a_record_belongs_to_the_split_with_its_first_byte(log):
    file = log(size=2048)
    a, b = file.add(b"one"), file.add(b"two")
    file.write()
    assert offsets(file.split(a, b, newest=True))[0] == [a]
    assert offsets(file.split(a, b + 1, newest=True))[0] == [a, b]
    assert offsets(file.split(a + 1, b, newest=True))[0] == []
    assert offsets(file.split(b, b + 1, newest=True))[0] == [b]
    assert offsets(file.split(b + 1, newest=True))[0] == []


@pytest.mark.parametrize("mapped", [True, False])
def test_zeros_behind_the_newest_record_are_its_end_and_no_error(log, mapped):
    file = log(size=1 << 21)
    file.add()
    end = file.add() + len(file.data) // 2
    file.write()
    split = file.split(newest=True, mapped=mapped)
    assert offsets(split) == (file.places, []) and split.tail == split.position == end
    assert offsets(file.split(newest=False, mapped=mapped))[1] == [(end, 1 << 21, "zeros before the end-of-file record")]


@pytest.mark.parametrize("keep", [4, 8, 40, 90, 95, 140])
def test_a_half_written_newest_record_is_not_returned(log, keep):
    file = log(size=4096)
    a = file.add(b"first")
    b = file.add(b"second" * 9, properties={"name": "value"})
    file.damage(b + keep, bytes(len(file.data) - (b - file.start) - keep))
    file.write()
    split = file.split(newest=True)
    assert offsets(split) == ([a], []) and split.tail == b


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("step", [1, 64, 4096])
def test_damage_is_one_region_whatever_the_splits(log, step, mapped):
    file = log(size=4096)
    for i in range(9):
        file.add(b"payload" * i)
    file.end()
    file.damage(file.places[3] + 4, b"\0\0\0\0")       # no magic code
    file.damage(file.places[6], b"\x7f\xff\xff\xff")   # a size beyond the file
    file.write()
    found, bad = chained(file, step, mapped=mapped)
    assert found == [p for i, p in enumerate(file.places) if i not in (3, 6)]
    assert bad == [(file.places[3], file.places[4], "unknown magic code"), (file.places[6], file.places[7], "impossible size")]


def test_checksums_are_checked_when_asked(log):
    file = log(size=4096)
    for i in range(4):
        file.add(b"payload %d" % i)
    file.add(b"with its own", crc_property=True)
    file.add()
    file.end()
    file.damage(file.places[1] + 90, b"!")
    file.damage(file.places[4] + 8, b"\0\0\0\1")       # the body's CRC in the header; __CRC32# sees it as well
    file.write()
    assert chained(file, 4096) == (file.places, [])
    found, bad = chained(file, 50, verify="crc")
    assert found == [p for i, p in enumerate(file.places) if i not in (1, 4)]
    assert [(r.begin, r.kind) for r in bad] == [(file.places[i], "wrong checksum") for i in (1, 4)]


def test_stale_records_behind_the_end_of_file_record_stay_hidden(log):
    file = log(size=2048)
    file.add(b"a" * 100)
    blank_at = len(file.data)
    stale = [file.add(b"stale") for _ in range(3)]
    rest = bytes(file.data[blank_at + 8:])
    del file.data[blank_at:]
    file.end()
    file.data += rest
    file.write()
    for step in (1, 33, 2048):
        assert chained(file, step) == ([file.places[0]], [])
    assert stale


def test_rows_are_chosen(log):
    file = log(size=8192)
    for i in range(12):
        file.add(topic=("A", "B")[i % 2], queue_id=i % 3, queue_offset=i, store_timestamp=1000 + i,
                 tags=("x", "y", None)[i % 3], sys_flag=(0, 4, 8, 12)[i % 4])
    file.write()

    def chosen(**choice):
        split = file.split(newest=True)
        split.choose(**choice)
        return [r["queueOffset"] for r in rows_of(split, ("queueOffset",))[0]]

    top = 1 << 60
    assert chosen(selectors=[(b"A", None, 0, top)]) == [0, 2, 4, 6, 8, 10]
    assert chosen(selectors=[(b"A", 0, 0, 6), (b"B", 1, 0, top)]) == [0, 1, 7]
    assert chosen(selectors=[]) == []
    assert chosen(tags=[b"y"]) == [1, 4, 7, 10] and chosen(tags=[]) == []
    assert chosen(sql="TAGS = 'y'") == chosen(tags=[b"y"])
    assert chosen(sql="TAGS IS NULL", time_low=1003) == [5, 8, 11]
    assert chosen(sql=SqlFilter("TAGS <> 'y'"), tags=[b"x", b"y"]) == [0, 3, 6, 9]
    assert chosen(time_low=1003, time_high=1005) == [3, 4]
    assert chosen(transactional=False) == [0, 2, 4, 6, 8, 10]


def test_skip_counts_and_stops_at_records(log):
    file = log(size=8192)
    for i in range(10):
        file.add(b"z" * 50, topic=("A", "B")[i % 2])
    file.write()
    size = file.places[1] - file.places[0]
    with file.split(newest=True) as split:
        assert split.skip(max_rows=3) == (3, 3 * size) and split.position == file.places[3]
        assert split.skip(max_bytes=1) == (1, size) and split.position == file.places[4]
        assert split.skip(max_bytes=2 * size + 1) == (2, 2 * size)
        split.choose(selectors=[(b"B", None, 0, 99)], sql="missing IS NULL")
        assert split.skip(max_rows=1) == (1, 2 * size)
        assert split.skip() == (1, 2 * size) and split.done and split.position == file.places[9] + size


def test_broken_utf8_comes_as_java_reads_it(log):
    file = log(size=4096)
    file.add(properties=b"TAGS\x01gr\xc3\x28\xff\xed\xa0\x80\x02KEYS\x01" + "schlüssel".encode())
    file.write()
    row = rows_of(file.split(newest=True))[0][0]
    assert row["tags"] == "gr�(��" and row["keys"] == "schlüssel"


def test_wrong_arguments_and_missing_files_are_named(log, tmp_path):
    with pytest.raises(ConfigError, match="verify"):
        Split(tmp_path / "x", 0, 0, 1, verify="perhaps")
    with pytest.raises(FileNotFoundError, match="x"):
        Split(tmp_path / "x", 0, 0, 1)
    file = log(start=4096)
    file.write()
    with pytest.raises(ConfigError, match="begins before"):
        file.split(begin=0)


def test_nothing_but_reads_reaches_the_store(log):
    from rmq_store.base.io._io import ProbeIo

    file = log(size=4096)
    file.add()
    file.write()
    probe = ProbeIo()
    for mapped in (True, False):
        rows_of(file.split(newest=True, mapped=mapped, io=probe))
    assert {c.kind for c in probe.trace()} <= {"open", "size", "mmap", "munmap", "pread", "next_data", "close"}
    assert all(c.flags & 3 == 0 for c in probe.trace() if c.kind == "open")


def test_a_part_reads_little_more_than_itself(tmp_path):
    """To find where its records begin it looks back, and each of them once: it read a piece of the log for each."""
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 24, index_enabled=False) as store:
        store.put_many("T", [bytes(900)] * 12_000)
        store.flush()
    (tmp_path / "queues").mkdir()
    begin, end = 9 << 20, 10 << 20
    before = read_bytes()
    rows, first, _ = queue_part(["", str(next((tmp_path / "s" / "commitlog").iterdir())), 0, begin, end, True, False],
                                str(tmp_path / "queues"), 6_000_000)
    assert rows and begin <= first < begin + 2000
    assert read_bytes() - before < 32 << 20         # 8 MiB back, the part, and some records at the edges of pieces twice


def read_bytes():
    """What this thread has read: bytes."""
    return int(Path("/proc/thread-self/io").read_text().split()[1])

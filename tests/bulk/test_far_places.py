"""Places far behind a file's end, and numbers no place has: nothing is there, or an error that names file and place."""
import pytest

from rmq_store import MessageStore
from rmq_store.access.bulk._queues import index_columns, queue_columns, record_time
from rmq_store.access.bulk._rebuild import queue_part
from rmq_store.codec._layout import RECORD_TIMED_SIZE

FAR = [1 << 40, 1 << 58, (1 << 58) + 1, 1 << 60, (1 << 63) - 1, -1]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("far") / "s"
    with MessageStore.open(root, segment_size_bytes=1 << 16, index_slots=10, index_entries_max=100) as s:
        s.put("T", b"x", keys="k")
    return root


@pytest.mark.parametrize("at", FAR)
def test_nothing_is_there(root, at):
    queue = str(root / "consumequeue" / "T" / "0" / ("0" * 20))
    (index,) = map(str, (root / "index").iterdir())
    assert queue_columns(queue, at, 5000) is None and queue_columns(queue, 0, -1) is None
    for base, begin in ((at, 0), (40, at)):
        found = index_columns(index, base, begin, 5000)
        assert found is None or found[0] == 0


def test_a_count_of_all_numbers_reads_what_is_there(root):
    found = queue_columns(str(root / "consumequeue" / "T" / "0" / ("0" * 20)), 0, (1 << 63) - 1)
    assert found is not None and found[:2] == (0, 1)


@pytest.mark.parametrize("at", [0, *FAR])
def test_what_cannot_be_read_is_named(root, at):
    path = str(root / "commitlog" / ("0" * 20))
    try:
        found = record_time(path, at)
    except OSError as error:            # the kernel knows no such place
        assert error.filename == path and f"{RECORD_TIMED_SIZE} bytes at {at}" in str(error)
    else:
        assert (found is not None) is (at == 0)


def test_a_record_with_the_last_of_all_queue_offsets_is_in_no_rebuilt_queue(root, tmp_path):
    path = root / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[20:28] = ((1 << 63) - 1).to_bytes(8, "big")
    copy = tmp_path / ("0" * 20)
    copy.write_bytes(data)
    rows, first, _ = queue_part(("b", str(copy), 0, 0, len(data), True, True), str(tmp_path / "made"), 4000)
    assert rows == [] and first == 0 and not (tmp_path / "made").exists()

"""File sizes told by an existing store: by its own files alone, whatever else lies beside them."""
import os

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
ARABIC = "٠"        # decimal digits as Unicode has them are no digits of a file name


def plant(directory, digits, kind):
    """Something that sorts before the store's own files."""
    if kind == "directory":
        (directory / ("0" * (digits - 1) + "1")).mkdir()
    elif kind == "symlink":
        (directory / ("0" * (digits - 1) + "1")).symlink_to(directory.parent / "elsewhere")
    elif kind == "dangling":
        (directory / ("0" * (digits - 1) + "1")).symlink_to(directory.parent / "nowhere")
    else:
        (directory / (ARABIC * digits)).write_bytes(b"x" * 4444)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as s:
        s.put_many("T", [b"%d" % i * 30 for i in range(1000)])
        for i in range(10):
            s.put("T", b"x", keys=f"k{i}")
    # The first file goes, as cleaning takes it: what is planted sorts before all that is left.
    os.unlink(sorted((root / "commitlog").iterdir())[0])
    (tmp_path / "s" / "elsewhere").write_bytes(b"x" * 7777)
    return root


@pytest.mark.parametrize("kind", ["directory", "symlink", "dangling", "unicode"])
@pytest.mark.parametrize("readonly", [True, False])
def test_only_regular_files_with_ascii_digits_decide(root, kind, readonly):
    for directory, digits in ((root / "commitlog", 20), (root / "index", 17)):
        plant(directory, digits, kind)
    if kind == "unicode":
        (root / "consumequeue" / "T" / ARABIC).mkdir()
    with MessageStore.open(root, readonly=readonly) as s:
        assert (s.options.segment_size_bytes, s.options.consumequeue_file_size_bytes) == (1 << 16, 2000)
        assert (s.options.index_slots, s.options.index_entries_max) == (100, 1000)
        assert s.query_key("T", "k3")


@pytest.mark.parametrize("kind", ["directory", "symlink", "unicode"])
def test_a_queue_directory_must_be_one(root, kind):
    plant(root / "consumequeue" / "T" / "0", 20, kind)
    with MessageStore.open(root, readonly=True) as s:
        assert s.options.consumequeue_file_size_bytes == 2000


def test_a_name_beyond_every_offset_is_no_file_of_the_log(root):
    (root / "commitlog" / ("9" * 20)).write_bytes(bytes(1 << 16))
    with MessageStore.open(root) as s:
        assert s.options.segment_size_bytes == 1 << 16 and s.query_key("T", "k3")
    assert (root / "commitlog" / ("9" * 20)).exists()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_keys_tell_the_geometry_of_the_index(tmp_path, count):
    """The record of the only key lies at offset 0: eight zero bytes, of which a young file is full."""
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        for i in range(count):
            s.put("T", b"x", keys=f"k{i}")
    with MessageStore.open(tmp_path / "s") as s:
        assert (s.options.index_slots, s.options.index_entries_max) == (100, 1000)
        assert len(s.query_key("T", "k0").messages) == 1

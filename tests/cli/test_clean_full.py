"""A disk without one free byte: the store can be read, and cleaned."""
import shutil
import subprocess

import pytest

from rmq_store import MessageStore
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 2000, "consumequeue_file_size_bytes": 20_000}


@pytest.fixture
def disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(place):
    with open(place / "pad", "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("files", [None, 1, 3])
@pytest.mark.parametrize("killed", [False, True])
def test_clean_needs_no_room(disk, tmp_path, rmqstore, killed, files):
    root = disk / "s"
    with MessageStore.open(root, **SMALL) as store:
        for i in range(7000):
            store.put("T", b"x" * 1000, keys=str(i))
        store.flush()
        store.wait_dispatched(30)
        if killed:
            take_image(root, tmp_path / "image")
    if killed:
        shutil.rmtree(root)
        take_image(tmp_path / "image", root)
    fill(disk)
    assert rmqstore("stat", root)[0] == killed
    assert rmqstore("get", root, "-t", "T", "-q", "0", "-i", "6999")[0] == 0
    before = len(list((root / "commitlog").iterdir()))
    code, _, err = rmqstore("clean", root, "--hours", "0", *([] if files is None else ["--files", str(files)]))
    assert code == 0, err
    left = sorted(int(p.name) for p in (root / "commitlog").iterdir())
    assert left[0] == (1 << 20) * (7 if files is None else files) and before > len(left)
    with MessageStore.open(root, **SMALL) as store:
        assert store.min_log_offset == left[0] and store.get("T", 0, store.min_offset("T", 0)).status == 0
        assert store.put("T", b"next").queue_offset == 7000


def test_nothing_is_due(disk, rmqstore):
    root = disk / "s"
    with MessageStore.open(root, **SMALL) as store:
        store.put("T", b"x")
    fill(disk)
    code, _, err = rmqstore("clean", root, "--hours", "1000")
    assert code == 3 and "No space left" in err and len(list((root / "commitlog").iterdir())) >= 1

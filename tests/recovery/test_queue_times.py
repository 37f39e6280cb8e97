"""Queue files that recovery writes again keep the times by which 4.9 searches."""
import os
from pathlib import Path

from rmq_store import MessageStore
from tests.images import take_image

SMALL = {"segment_size_bytes": 65536, "consumequeue_file_size_bytes": 100, "index_enabled": False}


def crashed(tmp_path: Path, count: int) -> tuple[Path, dict[Path, int]]:
    """The image of a store killed with `count` messages in one queue, none of them covered by a checkpoint; its queue files'
    times in ns, all of them long ago."""
    image = tmp_path / "image"
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(count):
            store.put("T", b"%d" % i)
        store.flush()
        assert store.wait_dispatched(10)
        take_image(tmp_path / "s", image)
    (image / "checkpoint").unlink(missing_ok=True)
    files = sorted((image / "consumequeue" / "T" / "0").iterdir())
    times = {file: (1_000_000 + i) * 10**9 for i, file in enumerate(files)}
    for file, time in times.items():
        os.utime(file, ns=(time, time))
    return image, times


def test_files_that_hold_what_they_held_keep_their_time(tmp_path: Path) -> None:
    image, times = crashed(tmp_path, 12)
    with MessageStore.open(image, **SMALL) as store:
        assert [bytes(m.body) for m in store.scan("T", 0)] == [b"%d" % i for i in range(12)]
    assert len(times) == 3 and {file: file.stat().st_mtime_ns for file in times} == times


def test_a_file_that_got_more_is_as_new_as_it_is(tmp_path: Path) -> None:
    image, times = crashed(tmp_path, 12)
    last = max(times)
    with open(last, "r+b") as f:        # its last entry had not come yet
        f.seek(20)
        f.write(bytes(20))
    os.utime(last, ns=(times[last], times[last]))
    with MessageStore.open(image, **SMALL) as store:
        assert store.max_offset("T", 0) == 12
    assert last.stat().st_mtime_ns > times[last]
    assert all(file.stat().st_mtime_ns == times[file] for file in times if file != last)

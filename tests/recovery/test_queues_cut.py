"""A recovery that is killed at each call with which it cuts queues, and a power cut in the middle of their entries."""
import struct
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image

SIZES = {"segment_size_bytes": 1 << 20, "consumequeue_file_size_bytes": 80_000, "batch_consumequeue_file_size_bytes": 92_000,
         "consumequeue_ext_file_size_bytes": 16_384, "index_enabled": False, "manifest_enabled": False}
SAFE, COUNT = 150, 700
NOW = 1_800_000_000_000
KINDS = ["plain", "ext", "batch"]


def put(store: MessageStore, kind: str, begin: int, end: int) -> None:
    for n in range(begin, end):
        if kind == "batch":
            store.put_inner_batch("T", [b"x", b"y"])
        else:
            store.put("T", b"x", tags="A" if n % 3 else "B", properties={"n": str(n)})
    assert store.wait_dispatched(30)


@pytest.fixture(params=KINDS)
def crashed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, dict[str, object]]:
    """A store whose writer was killed: the checkpoint calls the entries of the first SAFE records safe."""
    kind, io = request.param, ProbeIo(keep_bytes=False)
    sizes = SIZES | {"consumequeue_ext_enabled": kind == "ext"}
    io.set_clock(NOW)
    with MessageStore.open(tmp_path / "live", _io=io, **sizes) as writer:
        if kind == "batch":
            writer.topic_table.set_queue_type("T", "BatchCQ")
        put(writer, kind, 0, SAFE)
        io.set_clock(NOW + 10_000)          # what is in the log three seconds before a checkpoint is safe
        put(writer, kind, SAFE, SAFE + 1)
    with MessageStore.open(tmp_path / "live", _io=io, **sizes) as writer:
        put(writer, kind, SAFE + 1, COUNT)
        return kind, take_image(tmp_path / "live", tmp_path / "crashed"), sizes


def check(root: Path, kind: str, sizes: dict[str, object]) -> None:
    """Everything is there, by its tag, too."""
    count = COUNT * (2 if kind == "batch" else 1)
    with MessageStore.open(root, **sizes) as store:
        assert store.wait_dispatched(30)
        assert [m.queue_offset for m in store.scan("T", 0)] == list(range(count))
        if kind != "batch":
            found, at = [], 0
            while at < count:
                result = store.get("T", 0, at, 64, tags="A")
                found, at = found + [m.queue_offset for m in result], max(result.next_offset, at + 1)
            assert found == [n for n in range(count) if n % 3]


def test_killed_at_each_call(crashed: tuple[str, Path, dict[str, object]], tmp_path: Path) -> None:
    """And once more, while the next recovery is at work."""
    kind, root, sizes = crashed
    images = [root]
    for life in range(2):
        root, io, opened = take_image(images[len(images) // 2], tmp_path / f"life{life}"), ProbeIo(keep_bytes=False), []
        for call in ("pwrite", "unlink", "rename"):
            io.gate(call, "consumequeue")
        thread = threading.Thread(target=lambda: opened.append(MessageStore.open(root, _io=io, **sizes)))   # noqa: B023
        thread.start()
        try:
            while thread.is_alive():
                for call in io.standing():
                    images.append(take_image(root, tmp_path / f"image{len(images)}"))
                    io.let(call.ticket)
                thread.join(0.0001)
        finally:
            io.ungate()
            thread.join()
            for store in opened:
                store.close()
    assert len(images) > 10
    for image in images:
        check(image, kind, sizes)


@pytest.mark.parametrize("sector", [8, 16, 24])
def test_a_power_cut_loses_the_end_of_the_entries(crashed: tuple[str, Path, dict[str, object]], sector: int) -> None:
    kind, root, sizes = crashed
    file = next((root / ("batchconsumequeue" if kind == "batch" else "consumequeue") / "T" / "0").iterdir())
    data = file.read_bytes()
    file.write_bytes(data[:sector * 512].ljust(len(data), b"\0"))
    check(root, kind, sizes)


@pytest.mark.parametrize("clean", [True, False])
def test_an_extension_unit_at_a_multiple_of_4_gib(tmp_path: Path, clean: bool) -> None:
    """The lower half of its address is 0, as that of one which a lost sector has cut in two."""
    root, size, bound = tmp_path / "s", 4096, 1 << 32
    sizes = SIZES | {"consumequeue_ext_enabled": True, "consumequeue_ext_file_size_bytes": size}
    with MessageStore.open(root, **sizes) as store:
        for _ in range(3):
            store.put("T", b"x", tags="A")
        assert store.wait_dispatched(30)
    ext = root / "consumequeue_ext" / "T" / "0"
    unit = (ext / f"{0:020d}").read_bytes()[:20]
    (ext / f"{0:020d}").unlink()
    full = (size - 4) // 20
    (ext / f"{bound - size:020d}").write_bytes((full * unit + b"\xff\xff").ljust(size, b"\0"))
    (ext / f"{bound:020d}").write_bytes(unit.ljust(size, b"\0"))
    with open(root / "consumequeue" / "T" / "0" / f"{0:020d}", "r+b") as f:
        for n, place in enumerate([bound - size + (full - 2) * 20, bound - size + (full - 1) * 20, bound]):
            f.seek(n * 20 + 12)
            f.write(struct.pack(">q", place - (1 << 63)))
    if not clean:
        (root / "abort").write_bytes(b"")
    for n in range(2):
        with MessageStore.open(root, **sizes) as store:
            for _ in range(5):
                store.put("T", b"x", tags="B")
            assert store.wait_dispatched(30)
            found = {tag: [m.queue_offset for m in store.get("T", 0, 0, 64, tags=tag)] for tag in "AB"}
            assert found == {"A": [0, 1, 2], "B": list(range(3, 8 + 5 * n))}
    assert {file.stat().st_size for file in ext.iterdir()} == {size}

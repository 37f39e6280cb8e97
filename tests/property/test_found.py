"""What the model found, each in the fewest steps that show it."""
import pytest

from rmq_store import MessageStore


@pytest.mark.parametrize("prezero", ["off", "window", "full"])
@pytest.mark.parametrize("size", [20_000, 4097, 300_001])
def test_files_of_any_size_can_be_prezeroed(tmp_path, prezero, size):
    """Direct writes take whole pages; the last bytes of such a file are none."""
    bodies = [b"%d" % (i % 10) * 500 for i in range(3 * size // 500)]
    with MessageStore.open(tmp_path / "s", segment_size_bytes=size, segment_prezero=prezero) as store:
        for body in bodies:
            store.put("T", body)
        assert [bytes(m.body) for m in store.scan()] == bodies
        assert store.stats()["log_files"] > 2

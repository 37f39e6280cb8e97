"""Who has a file of the log mapped in another process keeps its bytes, whatever the writer deletes."""
import subprocess
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo

MIB = 1 << 20
SIZE = 80 * MIB         # more than one of the pieces in which space goes back


@contextmanager
def holder(root, how="views"):
    """A process that holds what is there; yields a function that has it look, and tells how that ended."""
    child = subprocess.Popen([sys.executable, Path(__file__).with_name("holder.py"), root, how], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().startswith("held")

    def look():
        out, _ = child.communicate("\n", timeout=60)
        return out.strip() if child.returncode == 0 else f"died of {child.returncode}"

    try:
        yield look
    finally:
        child.kill()
        child.communicate()


@pytest.fixture
def rolled(tmp_path):
    """A store whose first file is full, and the probe under it."""
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, segment_size_bytes=SIZE, message_size_max_bytes=40 * MIB,
                           index_enabled=False) as store:
        for n in range(3):
            body = bytes([n + 1]) * (30 * MIB)
            store.put("T", body, properties={"SUM": str(zlib.crc32(body))})
        store.flush()
        assert store.wait_dispatched(10)
        yield store, probe


def cuts(probe):
    return [call.length for call in probe.trace() if call.kind == "ftruncate" and "/commitlog/" in (call.path or "")]


@pytest.mark.parametrize("how", ["views", "map"])
def test_a_reader_in_another_process_keeps_what_is_deleted(rolled, how):
    store, probe = rolled
    with holder(store.path, how) as look:
        assert store.clean(0).log_files == 1
        assert look() == "same"
    assert cuts(probe) == []

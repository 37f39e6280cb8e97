"""What a put returns or raises for statuses that no other room shows; tests/config/test_statuses.py has the table of all."""
import errno

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.status import PutStatus

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_enabled": False}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        yield made


def test_put_ok(store):
    result = store.put("T", b"x")
    assert result.status is PutStatus.PUT_OK and result.status.stored


@pytest.mark.parametrize("put", [lambda s: s.put("bad topic", b"x"), lambda s: s.put("T", "text"),
                                 lambda s: s.put("T", b"x", queue_id=-1), lambda s: s.put("T" * 128, b"x"),
                                 lambda s: s.put("T", b"x" * (1 << 16))])
def test_message_illegal(store, put):
    with pytest.raises(errors.MessageIllegal) as refusal:
        put(store)
    assert refusal.value.status is PutStatus.MESSAGE_ILLEGAL and store.max_log_offset == 0


def test_properties_size_exceeded(store):
    with pytest.raises(errors.PropertiesSizeExceeded) as refusal:
        store.put("T", b"x", properties={"p": "x" * 32767})
    assert refusal.value.status is PutStatus.PROPERTIES_SIZE_EXCEEDED and store.max_log_offset == 0


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, errors.CreateMappedFileFailed), (errno.ENOSPC, errors.DiskFull)])
def test_create_mapped_file_failed(tmp_path, code, kind):
    io = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as store:
        store.put("T", b"x")
        io.fail("fallocate", 1, code, path="/.alloc/0", sticky=True)
        with pytest.raises(kind) as refusal:
            for _ in range(200):
                store.put("T", b"x" * 1000)
        assert refusal.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        io.clear()

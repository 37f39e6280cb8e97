"""Errors: each keeps its parts, is caught as what it is, survives pickling, and its text names thing, value, limit and cure."""
import errno
import pickle

import pytest

from rmq_store import errors
from rmq_store.status import GetStatus, PutStatus

SAMPLES = [
    errors.ConfigError("option x is unknown: did you mean y?"),
    errors.illegal("key", None, "give a str"),
    errors.FilterIllegal("a >", 3, "the text ends before the expression does", "give a number"),
    errors.FilterFailed("sql a > 3: a is not a number"),
    errors.StoreClosed("/s"),
    errors.StoreLocked("/s", 42),
    errors.StoreLocked("/s"),
    errors.ForkedProcess("/s"),
    errors.StoreNotWriteable("/s"),
    errors.StoreIsSlave("/s", "host:10912"),
    errors.NotASlave("/s", "it has no config/replica.json"),
    errors.NotASlave("/s", "it was promoted", "open it as a master"),
    errors.MasterAlive("/s", "host:10911"),
    errors.StoreNotReadable("/s"),
    errors.PutError("odd", PutStatus.UNKNOWN_ERROR),
    errors.MessageIllegal(errors.exceeds("topic size", "200 bytes", "127", "shorten it")),
    errors.PropertiesSizeExceeded("long"),
    errors.LmqConsumeQueueNumExceeded("many"),
    errors.ServiceNotAvailable("stopping"),
    errors.InSyncReplicasNotEnough("few"),
    errors.CreateMappedFileFailed("late"),
    errors.OsPageCacheBusy("busy"),
    errors.PoolExhausted("empty"),
    errors.PutRefused("quota", "the tenant has no room", PutStatus.SERVICE_NOT_AVAILABLE),
    errors.SyncFailed(errno.EIO, "fdatasync", "/s/commitlog/0"),
    errors.WriteFailed(errno.EIO, "pwrite"),
    errors.ShortWrite(errno.EIO, "pwrite", "/s/f"),
    errors.DiskFull(errno.ENOSPC, "fallocate", "/s/f"),
    errors.OutOfResources(errno.EMFILE, "dispatch to the queues of", "/s"),
    errors.CorruptionError("/s/f", 12, "magic 1", "magic 2"),
    errors.ConfigFileCorrupted("/s/config/topics.json", None, "the content of a topics.json", "Expecting value"),
    errors.StoreRefusesToLoad("/s/f", None, "65536 bytes", "100 bytes"),
    errors.LogDirectoryMissing("/disk2/log", None, "a directory of the commit log (commitlog_path)", "none"),
    errors.UnknownVersion("/s/f", 91, "records of magic code 0xDAA320A7", "records of magic code 0xDAA320A9"),
    errors.BackendUnavailable("io_uring", "EPERM", "allow it in the sandbox"),
    errors.ViewsAlive("/s", 3),
    errors.TransactionUnknown("7F00", "the log has no half message of that id"),
    errors.TransactionDecided("7F00", "rolled back"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_pickles_with_all_its_parts(error):
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
    assert isinstance(error, errors.RmqStoreError)


def test_every_public_error_has_a_sample():
    classes = {getattr(errors, n) for n in errors.__all__ if isinstance(getattr(errors, n), type)} - {errors.StoredPart}
    bases = {errors.RmqStoreError, errors.StoreStateError, errors.DurabilityError}
    assert classes - bases == {type(e) for e in SAMPLES}


def test_errors_are_also_the_builtin_ones():
    assert isinstance(SAMPLES[0], ValueError)
    assert isinstance(errors.MessageIllegal("x"), ValueError)
    assert isinstance(errors.SyncFailed(5, "x"), OSError)
    assert isinstance(errors.ViewsAlive("/s", 1), BufferError)


def test_errno_is_kept_and_may_come_negative():
    error = errors.SyncFailed(-errno.EIO, "fdatasync", "/s/f")
    assert error.errno == errno.EIO
    assert error.filename == "/s/f"
    assert "fdatasync /s/f failed with errno 5" in str(error)
    assert errors.WriteFailed(errno.EIO).filename is None


def test_status_is_in_the_text():
    assert str(errors.MessageIllegal("bad")) == "MESSAGE_ILLEGAL: bad"
    assert errors.PutError("x", PutStatus.SERVICE_NOT_AVAILABLE).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert errors.DiskFull(28).status is PutStatus.CREATE_MAPPED_FILE_FAILED
    text = errors.exceeds("topic size", "200 bytes", "127", "shorten it")
    assert text == "topic size is 200 bytes, the limit is 127: shorten it"


def test_holder_of_the_lock_is_named():
    assert "process 42" in str(errors.StoreLocked("/s", 42))
    assert "Java" in str(errors.StoreLocked("/s"))


def test_statuses_have_upstream_order():
    assert [s.name for s in PutStatus][:10] == [
        "PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "SERVICE_NOT_AVAILABLE",
        "CREATE_MAPPED_FILE_FAILED", "MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED", "OS_PAGE_CACHE_BUSY", "UNKNOWN_ERROR"]
    assert [s.stored for s in PutStatus] == [True] * 4 + [False] * (len(PutStatus) - 4)
    assert GetStatus.OFFSET_RESET == 9

"""A device that fails for one kind of file, from some moment of an open store on: what the store says, keeps, and recovers."""
import errno

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import DiskFull, DurabilityError
from tests.crash import scenario
from tests.fault.live import Live

configs = pytest.mark.parametrize("config", scenario.CONFIGS, ids="-".join)
codes = pytest.mark.parametrize("code", [errno.EIO, pytest.param(errno.EROFS, marks=pytest.mark.slow)],
                                ids=errno.errorcode.get)
SYNCS = "fdatasync|fsync|msync|ring_sync"
# kind of file -> (part of its path, calls that are expected there, what learns of it first)
FILES = {
    "log": ("/commitlog/0", SYNCS + "|pwrite|ring_write", "put"),
    "new log file": ("/.alloc/0", "open|fallocate|fsync", None),
    "queue": ("/consumequeue/", "pwrite", "wait_dispatched"),
    "queue sync": ("/consumequeue/", SYNCS, "close"),
    "new queue file": ("/.alloc/", "open|fallocate|fsync", None),
    "index sync": ("/index/", SYNCS, "close"),
    "checkpoint": ("/checkpoint", "pwrite", "close"),
    "checkpoint sync": ("/checkpoint", SYNCS, "close"),
    "abort": ("/abort", "unlink", "close"),
    "lock": ("/lock", "ftruncate|lock", "close"),
    "offsets": ("/config/", "open|pwrite|fsync|rename", "offsets"),
    "directory": ("/s", "sync_dir", None),
}


@configs
@codes
@pytest.mark.parametrize("file", FILES)
def test_one_kind_of_file_fails(tmp_path, config, code, file):
    path, kinds, first = FILES[file]

    def steps(live):
        store = live.store
        live.put()
        store.offsets.commit("g", "T", 0, 1)
        store.offsets.flush()
        live.flush()
        assert store.wait_dispatched(10) and not live.errors
        live.probe.fail(kinds, 1, code, path=path, sticky=True)
        live.put_many(2, 700)
        live.attempt("wait_dispatched", lambda: store.wait_dispatched(0.5))
        store.offsets.commit("g", "T", 0, 2)
        live.attempt("offsets", store.offsets.flush)
        for _ in range(4):
            live.put(6000)
        live.flush()
        assert next(iter(store.get("T", 0, 0))).queue_offset == 0       # reads go on
        assert live.state[0] == "durable"

    live = Live(str(tmp_path / "s"), config, ProbeIo())
    live.run(steps)
    wrong = [e for e in live.wrong_errors(code) if not e.startswith("offsets raised OSError")]
    assert not wrong, wrong
    wrong = live.judge(live.root)
    assert wrong is None, f"{wrong}; errors {live.errors}"
    if live.probe.hits and first is not None:
        assert live.errors, "it failed, and nobody was told"
        names = [name for name, _ in live.errors]
        assert first in names, live.errors
    with MessageStore.open(live.root, **scenario.SMALL) as store:
        assert store.offsets.query("g", "T", 0) in (1, 2)       # the old one, or the new one


@pytest.mark.parametrize("file", [name for name in FILES if FILES[name][2] not in (None, "wait_dispatched")])
def test_the_rule_of_each_kind_is_met(tmp_path, file):
    """The table above would prove nothing where no call matched its rules."""
    path, kinds, _ = FILES[file]
    live = Live(str(tmp_path / "s"), ("mmap", "sync", "fdatasync"), ProbeIo())

    def steps(live):
        live.put()
        live.store.offsets.commit("g", "T", 0, 1)
        live.store.wait_dispatched(10)
        live.probe.fail(kinds, 1, errno.EIO, path=path)
        live.attempt("offsets", live.store.offsets.flush)
        live.put()
        live.flush()

    live.run(steps)
    assert live.probe.hits == 1 and live.errors


WANTS = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN]


@pytest.mark.parametrize("code", WANTS, ids=errno.errorcode.get)
@pytest.mark.parametrize("file", ["/consumequeue.ne", "/.alloc/2"])      # .new, and .next.0: one that is made ahead
def test_no_space_for_a_queue_or_the_index_heals(tmp_path, code, file):
    """Neither is worth a fence: entries are made when there is room, and the log they are made from is safe."""
    probe = ProbeIo()
    options = {**scenario.SMALL, "consumequeue_file_size_bytes": 200, "index_slots": 4, "index_entries_max": 8}
    with MessageStore.open(tmp_path / "s", _io=probe, **options) as store:
        store.put("T", b"0", keys="k0")
        assert store.wait_dispatched(10)
        probe.fail("open", 1, code, path=file, sticky=True)
        for i in range(1, 40):
            store.put("T", b"%d" % i, keys=f"k{i}")
        assert not store.wait_dispatched(0.05) and probe.hits > 0
        assert store.stats()["errno"] == 0 and store.flush() > 0
        probe.clear()
        assert store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.scan("T", 0)] == [b"%d" % i for i in range(40)]
        assert [bytes(m.body) for m in store.query_key("T", "k39")] == [b"39"]
    with MessageStore.open(tmp_path / "s", **options) as store:
        assert store.max_offset("T", 0) == 40 and not store.stats()["recovered"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
def test_a_paused_dispatch_neither_spins_nor_repeats_keys(tmp_path, code):
    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, **scenario.SMALL) as store:
        store.put("T", b"0", keys="k0")
        assert store.wait_dispatched(10)
        probe.fail("pwrite", 1, code, path="/consumequeue/", sticky=True)
        store.put("T", b"1", keys="k1")
        for _ in range(3):
            assert not store.wait_dispatched(0.2)
        assert 1 < probe.hits < 100         # a pause of 0.1 s between rounds; without it, some ten thousand
        probe.clear()
        assert store.wait_dispatched(30)
        assert len(list(store.query_key("T", "k1"))) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=errno.errorcode.get)
def test_offsets_that_cannot_be_written_stay_as_they_were(tmp_path, code):
    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, **scenario.SMALL) as store:
        store.put("T", b"x")
        store.offsets.commit("g", "T", 0, 1)
        store.offsets.flush()
        written = (tmp_path / "s/config/consumerOffset.json").read_bytes()
        store.offsets.commit("g", "T", 0, 2)
        probe.fail("pwrite", 1, code, path="/config/", sticky=True)
        with pytest.raises(OSError) as error:
            store.offsets.flush()
        assert error.value.errno == code
        assert isinstance(error.value, DiskFull) == (code in DiskFull.codes) == isinstance(error.value, DurabilityError)
        assert (tmp_path / "s/config/consumerOffset.json").read_bytes() == written
        assert store.put("T", b"y").status == 0         # nothing of the log's
        probe.clear()
        store.offsets.flush()
    with MessageStore.open(tmp_path / "s", **scenario.SMALL) as store:
        assert store.offsets.query("g", "T", 0) == 2 and not store.stats()["recovered"]

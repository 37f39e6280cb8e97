"""How often what a want stops is tried again."""
import errno
import threading

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.crash.scenario import SMALL
from tests.wants.world import bounded


def test_puts_that_wait_in_a_want_share_its_tries(tmp_path):
    """One each tenth of a second, and not one for each of them."""
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, write_path="pool", flush_backend="fdatasync", flush_mode="sync",
                           flush_deadline_ms=1000, **SMALL) as store:
        store.put("T", b"0")
        probe.fail("pwrite", 1, errno.ENOSPC, path="/commitlog/", sticky=True)
        threads = [threading.Thread(target=bounded, args=(lambda: store.put("T", b"1"), "a put")) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert 1 < probe.hits < 100
        probe.clear()
        assert store.put("T", b"2").status == 0

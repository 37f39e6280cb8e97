"""Recovery that fails, or is killed, at each of its system calls, and is done again: it ends with the same log."""
import errno

import pytest

from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from tests.crash import scenario
from tests.crash.disk import read_directory
from tests.crash.states import Scratch
from tests.crash.test_kill_points import OPTIONS, Killed

pytestmark = pytest.mark.crash
configs = pytest.mark.parametrize("config", [("mmap", "async", "msync"), ("pool", "sync", "fdatasync")], ids="-".join)
AT = 42         # a change in the third file of the runs' work: queues, index and log are all unfinished


def crashed(tmp_path, config):
    """(image, notes) of a kill after which recovery has much to do: a torn record and a good one behind it, too."""
    killed = Killed(tmp_path / "killed", config, AT)
    assert killed.happened
    return read_directory(killed.root), killed.notes


def log_of(root):
    return {path: data for path, data in read_directory(root).items() if path.startswith("commitlog/")}


def recovered_again(tmp_path, config, spoil):
    """For N = 1, 2, ...: recovery with spoil(probe, N), then a whole one. How many N there are."""
    image, notes = crashed(tmp_path, config)
    with Scratch(tmp_path) as scratch:
        whole = scratch.write(image)
        assert scenario.judge(whole, notes, OPTIONS) is None
        expected = log_of(whole)
        n = 0
        while True:
            n += 1
            root = scratch.write(image)
            probe = ProbeIo(keep_bytes=False)
            spoil(probe, n)
            try:
                scenario.Run(root, probe, *config).store.close()
            except (RmqStoreError, OSError) as e:
                assert probe.frozen or getattr(e, "errno", errno.EIO) in (errno.EIO, None), e
            wrong = scenario.judge(root, notes, OPTIONS)
            assert wrong is None, f"recovery spoilt at call {n}: {wrong}"
            assert log_of(root) == expected, f"recovery spoilt at call {n} ends in another log"
            if not (probe.hits or probe.frozen):
                return n


@configs
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from then on"])
def test_recovery_fails_at_every_change_and_sync(tmp_path, config, sticky):
    assert recovered_again(tmp_path, config, lambda probe, n: probe.fail("mutate|sync", n, errno.EIO, sticky=sticky)) > 20


@configs
def test_recovery_fails_at_every_other_call(tmp_path, config):
    assert recovered_again(tmp_path, config, lambda probe, n: probe.fail("pread|mmap|munmap|size|lock|close|next_data", n,
                                                                          errno.EIO)) > 20


@configs
def test_recovery_is_killed_at_every_change(tmp_path, config):
    assert recovered_again(tmp_path, config, lambda probe, n: probe.freeze("mutate", n)) > 10

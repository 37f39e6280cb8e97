"""Full and failing file systems of our own making: small mounts, which need root."""
import os
import subprocess
import threading

import pytest

from rmq_store.errors import CreateMappedFileFailed, DiskFull, DurabilityError
from tests.crash import scenario
from tests.mounts import loop_mount, opened, run

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")]
CONFIGS = [("mmap", "async", "msync"), ("pool", "sync", "fdatasync"), ("pool", "async", "msync")]
if scenario.RING_HERE:
    CONFIGS += [("pool", "async", "io_uring"), ("pool", "sync", "io_uring")]
configs = pytest.mark.parametrize("config", CONFIGS, ids="-".join)


@pytest.fixture
def ext4(tmp_path):
    """A mounted ext4 of 24 MiB on a loop device: (directory, loop device)."""
    with loop_mount(tmp_path, 24 << 20, ("mkfs.ext4", "-q", "-F", "-J", "size=4"), "-o", "errors=remount-ro") as made:
        yield made


@configs
def test_a_full_disk_refuses_puts_and_heals(ext4, config):
    place, _ = ext4
    sent = []
    with opened(place, config) as store:
        def fill():
            while True:
                body = b"%05d" % len(sent) * 8000
                store.put("T", body, queue_id=0)
                sent.append(body)

        (place / "ballast").write_bytes(b"x" * (6 << 20))
        for _ in range(3):
            with pytest.raises((DiskFull, CreateMappedFileFailed)):
                fill()
        before = len(sent)
        assert store.stats()["errno"] == 0          # no fence
        store.flush()
        (place / "ballast").unlink()
        os.sync()
        pause = threading.Event()
        for _ in range(2000):                       # by itself: only puts, no other call
            try:
                store.put("T", b"%05d" % len(sent) * 8000, queue_id=0)
                break
            except (DiskFull, CreateMappedFileFailed):
                pause.wait(0.01)
        sent.append(b"%05d" % len(sent) * 8000)
        assert len(sent) == before + 1
        assert store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.scan("T", 0)] == sent
    with opened(place, config) as store:
        assert [bytes(m.body) for m in store.scan("T", 0)] == sent


@pytest.mark.untraced       # mounted again, the files are not what the trace made them
@configs
def test_a_file_system_that_turns_read_only_is_a_fence(ext4, config):
    """ext4 after an error: every write fails from now on. Typed errors, reads go on, close() comes back, reopening recovers."""
    place, loop = ext4
    trigger = f"/sys/fs/ext4/{os.path.basename(loop)}/trigger_fs_error"
    if not os.access(trigger, os.W_OK):
        pytest.skip(f"{trigger} cannot be written here")
    store = opened(place, config)
    sent = [b"%05d" % i * 100 for i in range(50)]
    for body in sent:
        store.put("T", body, queue_id=0)
    store.flush()
    assert store.wait_dispatched(30)
    with open(trigger, "w") as f:
        f.write("1")
    with pytest.raises((DurabilityError, CreateMappedFileFailed)) as failed:
        for _ in range(200):
            store.put("T", b"lost" * 5000, queue_id=0)
            store.flush()
    assert failed.value.errno is None or failed.value.errno > 0
    assert [bytes(m.body) for m in store.scan("T", 0)][:50] == sent
    try:
        store.close()
    except DurabilityError:
        pass
    run("umount", str(place))
    subprocess.run(["e2fsck", "-fy", loop], capture_output=True)
    run("mount", loop, str(place))
    with opened(place, config) as store:
        assert [bytes(m.body) for m in store.scan("T", 0)][:50] == sent
        store.put("T", b"again", queue_id=0)
        store.flush()

"""Which file system a path lies on: by mountinfo, and by statfs where mountinfo has no answer."""
import os

import pytest

from rmq_store.base.machine import device, limits

ELSEWHERE = "36 25 0:33 / /elsewhere rw,noatime - xfs /dev/sdb1 rw,attr2\n"


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """mounts(text) is what the kernel says is mounted; None: no /proc at all."""
    def say(text):
        path = tmp_path / "mountinfo"
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(device, "MOUNTINFO", path)
    return say


def test_the_longest_mount_point_has_it(mounts):
    mounts(ELSEWHERE + "40 36 0:34 / /elsewhere/with\\040space\\011and\\134 ro - ext4 /dev/sdc ro,data=ordered\n")
    assert device.mount_of("/elsewhere/a") == ("/elsewhere", "xfs", "/dev/sdb1", "rw,noatime,rw,attr2")
    assert device.mount_of("/elsewhere/with space\tand\\/b")[1:] == ("ext4", "/dev/sdc", "ro,ro,data=ordered")


@pytest.mark.parametrize("text", [ELSEWHERE, "", None])
def test_without_a_line_statfs_answers(tmp_path, mounts, text):
    kind = device.mount_of(tmp_path)[1]
    mounts(text)
    assert device.mount_of(tmp_path) == ("", device.file_system(tmp_path), "", "")
    assert kind in (device.file_system(tmp_path), "ext3", "ext2")       # these three have one number
    assert device.block_device(tmp_path) is None or device.describe(tmp_path)["name"]


def test_numbers_of_file_systems():
    assert device.file_system("/dev/shm") == "tmpfs"
    assert device.file_system("/proc") == "0x9fa0"      # not in the table: by its number
    with pytest.raises(FileNotFoundError, match="no-such-place"):
        device.file_system("/no-such-place")


def test_what_is_free_in_memory_is_no_more_than_memory(mounts, monkeypatch):
    mounts(None)
    monkeypatch.setattr(limits, "memory_limit", lambda: 5)
    assert limits.free_bytes("/dev/shm/not/yet") == 5
    assert limits.free_bytes(os.getcwd()) > 5

"""doctor on file systems made for it, in a mount namespace of its own: overlay, read-only, btrfs, xfs, a chroot. Needs root."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from rmq_store.base.machine.device import file_system

pytestmark = pytest.mark.root

DOCTOR = """
import json, sys, rmq_store
print(json.dumps(rmq_store.doctor(sys.argv[1], measure=False).as_dict()))
"""
MOUNTS = {
    "overlay": "mkdir -p $W/t && mount -t tmpfs none $W/t && mkdir -p $W/t/lower $W/t/upper $W/t/work $W/m && "
               "mount -t overlay overlay -o lowerdir=$W/t/lower,upperdir=$W/t/upper,workdir=$W/t/work $W/m",
    "readonly": "mkdir -p $W/m && mount -t tmpfs none $W/m && mount -o remount,ro $W/m",
    "btrfs": "mkdir -p $W/m && truncate -s 256M $W/image && mkfs.btrfs -q $W/image && mount -o loop $W/image $W/m",
    "xfs": "mkdir -p $W/m && truncate -s 512M $W/image && mkfs.xfs -q $W/image && mount -o loop $W/image $W/m",
}


def doctor_on(kind, tmp_path):
    """What doctor says about $W/m, where the mounts of this kind are; they go with the namespace."""
    if shutil.which("unshare") is None or (kind in ("btrfs", "xfs") and shutil.which(f"mkfs.{kind}") is None):
        pytest.skip("unshare, or the tool that makes this file system, is missing")
    script = f"({MOUNTS[kind]}) >/dev/null 2>&1 || exit 77; '{sys.executable}' -c '{DOCTOR}' $W/m"
    done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script], capture_output=True, text=True,
                          env={**os.environ, "W": str(tmp_path), "PYTHONPATH": str(pathlib.Path(__file__).parents[2])})
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"{kind} cannot be mounted here")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def levels(told):
    return {(i["subject"], i["level"]) for i in told["items"]}


def test_an_overlay(tmp_path):
    told = doctor_on("overlay", tmp_path)
    assert told["capability"]["file_system"] == "overlay" and ("file system", "finding") in levels(told)


def test_a_read_only_mount(tmp_path):
    told = doctor_on("readonly", tmp_path)
    item = next(i for i in told["items"] if i["subject"] == "directory")
    assert item["level"] == "finding" and "remount it read-write" in item["cure"]
    assert told["capability"]["uring"]["file"] in (30, None)


def test_btrfs_copies_on_write(tmp_path):
    told = doctor_on("btrfs", tmp_path)
    assert told["capability"]["file_system"] == "btrfs" and ("file system", "finding") in levels(told)


def test_xfs_is_fine(tmp_path):
    told = doctor_on("xfs", tmp_path)
    assert told["capability"]["file_system"] == "xfs" and ("file system", "ok") in levels(told)
    assert told["capability"]["fallocate_reserves"]
    assert ("space", "finding") in levels(told) or told["capability"]["free"] > 64 << 20


def test_a_chroot_without_a_line_for_its_root(tmp_path):
    """As packages are built: / is a plain directory, and mountinfo tells nothing about what lies in it."""
    enter = ("mkdir -p $W/root/place && for d in /*; do n=$W/root$d; if [ -L $d ]; then cp -P $d $n; "
             "elif [ -d $d ] && [ $d != /lost+found ]; then mkdir -p $n && mount --rbind $d $n; fi; done")
    command = f"({enter}) >/dev/null 2>&1 || exit 77; exec chroot $W/root '{sys.executable}' -c '{DOCTOR}' /place/not/yet"
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", command], capture_output=True, text=True,
                          env={**os.environ, "W": str(tmp_path), "PYTHONPATH": str(pathlib.Path(__file__).parents[2])})
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no chroot can be made here")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["capability"]["file_system"] == file_system(tmp_path) and told["capability"]["mount_point"] == ""
    said = next(i for i in told["items"] if i["subject"] == "file system")
    assert said["fact"].startswith(file_system(tmp_path)) and "mountinfo" in said["fact"]

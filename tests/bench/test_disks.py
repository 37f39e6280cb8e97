"""Disks that the benchmarks make themselves: they are what they say, and go whatever happens."""
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store.base.machine.device import mount_of
from rmq_store.bench import disks

ROOT = Path(__file__).parents[2]

# In a process of its own: the mounts are made in a namespace that this process would keep.
PROGRAM = """
import sys, time
from pathlib import Path
from rmq_store.bench import disks
from rmq_store.base.machine.device import block_device, mount_of
with disks.made([sys.argv[1]], Path(sys.argv[2]), 512) as (places, refused):
    for place in places:
        print(mount_of(place.path)[1], (block_device(place.path) or Path("none")).name, place.cgroup, flush=True)
    for why in refused.values():
        print("refused", why, flush=True)
    if len(sys.argv) > 3:
        time.sleep(600)
"""


def _start(kind: str, under: Path, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", PROGRAM, kind, str(under), *more], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)})


def _answer(child: "subprocess.Popen[str]") -> list[str]:
    assert child.stdout is not None
    words = child.stdout.readline().split()
    if words[0] == "refused":
        child.wait()
        pytest.skip(" ".join(words[1:]))
    return words


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="disks are made by root only")
@pytest.mark.parametrize("kind", ["tmpfs", *(pytest.param(k, marks=pytest.mark.slow)
                                             for k in ("ext4", "xfs", "btrfs", "memory", "throttled"))])
def test_a_disk_is_made_and_goes(kind: str, tmp_path: Path) -> None:
    with _start(kind, tmp_path) as child:
        system, device, *cgroup = _answer(child)
        assert system == ("ext4" if kind in ("memory", "throttled") else kind)
        assert device.startswith("none" if kind == "tmpfs" else "loop")
        assert bool(cgroup) == (kind == "throttled")
        assert child.wait() == 0
    assert not list(tmp_path.iterdir())
    assert not any(Path(group).exists() for group in cgroup)
    assert mount_of(tmp_path) == mount_of(tmp_path.parent)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="disks are made by root only")
def test_killed_it_leaves_no_loop_device_and_no_image(tmp_path: Path) -> None:
    with _start("ext4", tmp_path, "stay") as child:
        _, device = _answer(child)
        child.send_signal(signal.SIGKILL)
        child.wait()
    used = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    assert used == 0
    backing = Path(f"/sys/block/{device}/loop/backing_file")
    while backing.exists() and str(tmp_path) in backing.read_text():    # the kernel lets go when the namespace is gone
        os.sched_yield()


def test_without_root_every_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with disks.made(["ext4", "tmpfs"], tmp_path) as (places, refused):
        assert not places and all("by root only" in why for why in refused.values()) and set(refused) == {"ext4", "tmpfs"}


def test_a_missing_mkfs_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "_own_mounts", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with disks.made(["xfs"], tmp_path) as (places, refused):
        assert not places and "xfsprogs" in refused["xfs"]
    assert not list(tmp_path.iterdir())

"""File systems on loop devices, and small stores on them. Needs root; skips where the machine lacks a tool or refuses."""
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from rmq_store import MessageStore
from tests.crash import scenario

SMALL = {"segment_size_bytes": 1 << 20, "index_enabled": False, "message_size_max_bytes": 60_000,
         "consumequeue_file_size_bytes": 20 * 4096}


def run(*command):
    """Its output; a test that needs what the machine refuses is skipped."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{command[0]}: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


@contextmanager
def loop_mount(tmp_path, size, make, *mount_options):
    """(directory, loop device) of a mounted file system of so many bytes. make: what makes it, without the image."""
    if shutil.which(make[0]) is None:
        pytest.skip(f"no {make[0]}")
    image, place = tmp_path / "image", tmp_path / "mount"
    with open(image, "wb") as f:
        f.truncate(size)
    place.mkdir()
    run(*make, str(image))
    loop = run("losetup", "--find", "--show", str(image))
    try:
        run("mount", *mount_options, loop, str(place))
        try:
            yield place, loop
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)


def opened(place, config, **more):
    """A store with small files on it. config: write path, flush mode, back end."""
    return MessageStore.open(place / "s", **{**SMALL, **scenario.config_options(config), **more})

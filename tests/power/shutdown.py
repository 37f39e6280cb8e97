"""Whether what a sync has confirmed outlives the end of its file system: python -m tests.power.shutdown --times 24 --dir DIR.

No message store takes part (shutdown.c): a loop stores eight bytes and syncs, the file system is shut down or meets an error,
and after the next mount each store whose sync returned 0 is looked for. One JSON line for each way of storing and of ending. It
tells the kernel's part in a loss from ours; docs/choosing-a-backend.md says what came of it.
"""
import argparse
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.power.disk import Disk, Unmountable, call, make_image, missing, own_mounts

STRIDE = 700
BYTES = 384 << 20
HOWS = ("msync", "fdatasync", "pwrite")
ENDS = {"ext4": ("not flushed", "log flushed", "default", "error"), "xfs": ("not flushed", "log flushed", "default")}
FLAGS = {"default": "0", "log flushed": "1", "not flushed": "2"}


def one(program: Path, room: Path, kind: str, how: str, ending: str, written: bool) -> tuple[int, list[int]]:
    """(how many stores were confirmed, which of them are gone). Raises Unmountable."""
    image = make_image(room / "image", kind, BYTES)
    with Disk(room, image, kind) as disk:
        what = FLAGS.get(ending) or f"/sys/fs/ext4/{os.path.basename(disk.loop)}/trigger_fs_error"
        delay_us = random.randrange(50_000, 300_000)
        confirmed = int(call(program, disk.place, how, what, str(int(written)), str(delay_us)).split()[0])
    if ending == "error":
        subprocess.run(["e2fsck", "-fy", str(image)], capture_output=True)      # exit 1: mended
    with Disk(room, image, kind) as disk:
        data = (disk.place / "file").read_bytes()
    return confirmed, [i for i in range(1, confirmed + 1) if struct.unpack_from("<Q", data, i * STRIDE)[0] != i]


def experiment(program: Path, room: Path, kind: str, how: str, ending: str, written: bool, times: int) -> dict[str, object]:
    """So many runs of one kind: how many lost something that was confirmed, and what."""
    runs, lost, unmountable = 0, [], 0
    for number in range(times):
        place = room / str(number)
        place.mkdir()
        try:
            confirmed, gone = one(program, place, kind, how, ending, written)
            runs += 1
            if gone:
                lost.append({"confirmed": confirmed, "gone": gone[:5]})
        except Unmountable:
            unmountable += 1
        finally:
            shutil.rmtree(place)
    return {"file_system": kind, "how": how, "ending": ending, "blocks": "written before" if written else "never written",
            "runs": runs, "unmountable": unmountable, "runs_that_lost": len(lost), "lost": lost}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.power.shutdown", description="syncs and the end of a file system")
    parser.add_argument("--times", type=int, default=24)
    parser.add_argument("--file-system", nargs="*", default=list(ENDS), choices=list(ENDS))
    parser.add_argument("--ending", nargs="*", default=ENDS["ext4"], choices=ENDS["ext4"])
    parser.add_argument("--dir", type=Path, help="where images lie; default: a temporary directory")
    given = parser.parse_args(arguments)
    if why := missing():
        print(why, file=sys.stderr)
        return 77
    own_mounts()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))      # mounts are given up on the way out
    with tempfile.TemporaryDirectory(prefix="rmq-shutdown-", dir=given.dir) as directory:
        room = Path(directory)
        program = room / "shutdown"
        call("cc", "-O2", "-pthread", "-o", program, Path(__file__).with_suffix(".c"))
        for kind in given.file_system:
            for ending in [e for e in ENDS[kind] if e in given.ending]:
                for written in (False, True):
                    for how in HOWS:
                        print(json.dumps(experiment(program, room, kind, how, ending, written, given.times)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

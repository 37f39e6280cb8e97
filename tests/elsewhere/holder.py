"""A reader in a process of its own: opens the store readonly, holds views of all that is there, says so, and looks at every
byte of them when it is told to.

Arguments: the store's path, `views` or `map` (a bare map of the first file of the log). Prints "held N", waits for a line,
prints "same" where each body still has the checksum it was put with.
"""
import glob
import mmap
import os
import sys
import zlib

from rmq_store import MessageStore


def main() -> None:
    root, how = sys.argv[1:]
    if how == "map":
        fd = os.open(sorted(glob.glob(f"{root}/commitlog/*"))[0], os.O_RDONLY)
        held = [mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)]
        os.close(fd)
        sums = [zlib.crc32(held[0])]
        print("held", 1, flush=True)
        sys.stdin.readline()
        print("same" if [zlib.crc32(held[0])] == sums else "other", flush=True)
        return
    with MessageStore.open(root, readonly=True) as store:
        views = list(store.scan("T", 0))
        print("held", len(views), flush=True)
        sys.stdin.readline()
        print("same" if all(zlib.crc32(view.body) == int(view.properties["SUM"]) for view in views) else "other", flush=True)


main()

"""What the first use of a page of memory costs, and its second use: microseconds for 4 KiB, of a process and of the page cache.

Some hosts lend a virtual machine its memory page by page, and take back what is free. The first use of a page can then cost a
hundred times the second. Who writes through the page cache pays it for each page of the log, so tables beside such peers name
this figure. The page cache is written in pieces of 1 MiB, as a store at full speed does; the kernel takes large free blocks for
them, which are those that a host takes back.

    python -m bench.load.first_touch --dir DIR --out FILE
"""
import mmap
import os
import time

from bench.load.driver import keep, parser, report
from rmq_store.bench.runner import SETTLE_S, scratch, settle

MIB = 1 << 20


def touched(mib: int) -> dict[str, float]:
    """Takes `mib` of memory; then writes again to each page."""
    begun = time.perf_counter()
    with mmap.mmap(-1, mib * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE) as memory:
        first = time.perf_counter() - begun
        begun = time.perf_counter()
        memory[:] = bytes(mib * MIB)
        again = time.perf_counter() - begun
    pages = mib * MIB / mmap.PAGESIZE
    return {"first_us": round(1e6 * first / pages, 3), "again_us": round(1e6 * again / pages, 3)}


def cached(path: str, mib: int) -> dict[str, float]:
    """Processor time of writing `mib` into the page cache; then over the same pages."""
    piece = bytes(MIB - 1) + b"\1"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.posix_fallocate(fd, 0, mib * MIB)
        took = []
        for _ in range(2):
            begun = time.process_time()
            for at in range(0, mib * MIB, MIB):
                os.pwrite(fd, piece, at)
            took.append(time.process_time() - begun)
    finally:
        os.close(fd)
    pages = mib * MIB / mmap.PAGESIZE
    return {"first_us": round(1e6 * took[0] / pages, 3), "again_us": round(1e6 * took[1] / pages, 3)}


def main(argv: list[str] | None = None) -> None:
    args = parser(__doc__, mib=2048).parse_args(argv)
    mib, rest = (8, 0) if args.quick else (args.mib, SETTLE_S)
    rows = []
    with scratch(args.dir) as base:
        for subject in ("page cache", "memory"):        # the memory that the second gets has just been used
            settle(rest)        # a host takes free memory back within seconds
            figures = touched(mib) if subject == "memory" else cached(str(base / "written"), mib)
            rows.append({"bench": "first_touch", "subject": subject, "mib": mib, **figures})
            report(rows[-1])
    keep(args, rows, lambda row: ("first_touch", row["subject"]))


if __name__ == "__main__":
    main()

"""What the first use of a page of memory costs, and its second use: microseconds for 4 KiB.

Some hosts lend a virtual machine its memory page by page, and take back what is free. The first use of a page can then cost a
hundred times the second. Who writes through the page cache pays it for each page of the log, so tables beside such peers name
this figure.

    python -m bench.load.first_touch --out FILE
"""
import mmap
import time

from bench.load.driver import keep, parser, report
from rmq_store.bench.runner import SETTLE_S, settle


def touched(mib: int) -> dict[str, float]:
    """Takes `mib` of memory; then writes again to each page."""
    begun = time.perf_counter()
    with mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE) as memory:
        first = time.perf_counter() - begun
        begun = time.perf_counter()
        memory[:] = bytes(mib << 20)
        again = time.perf_counter() - begun
    pages = (mib << 20) / mmap.PAGESIZE
    return {"first_us": round(1e6 * first / pages, 3), "again_us": round(1e6 * again / pages, 3)}


def main(argv: list[str] | None = None) -> None:
    args = parser(__doc__, mib=3072).parse_args(argv)
    row = {"bench": "first_touch", "mib": 8 if args.quick else args.mib}
    settle(0 if args.quick else SETTLE_S)       # a host takes free memory back within seconds
    row |= touched(int(row["mib"]))
    keep(args, [row], lambda row: ("first_touch", "memory"))
    report(row)


if __name__ == "__main__":
    main()

"""Memory that the host has lent to this machine before something is measured that writes through the page cache.

Some hosts lend a virtual machine its memory page by page, and take back what is free, some hundreds of MiB a second
(bench/load/first_touch.py). Whoever then fills the page cache at full speed is measured at the pace at which the host lends,
on whichever side, and only for as long as the pages last that were lent before. So a bench of such a speed takes the memory
that a measurement will fill, and gives it back when the measurement begins. Machines of one's own have theirs all the time.
"""
import mmap
from typing import Self

import psutil

MIB = 1 << 20
SPARE = 2       # of what is available no more than one part in so many is taken


class Lent:
    """So much memory, as far as the machine has it, until `give_back()`, with which the measurement begins."""

    def __init__(self, mib: int) -> None:
        size = min(mib * MIB, psutil.virtual_memory().available // SPARE) // mmap.PAGESIZE * mmap.PAGESIZE
        self._memory: mmap.mmap | None = None
        if size:
            self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._memory[::mmap.PAGESIZE] = bytes(size // mmap.PAGESIZE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Idempotent."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

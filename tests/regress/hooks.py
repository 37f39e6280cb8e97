"""Python functions in place of single calls of a probe's I/O table, to stop one thread at an exact place."""
import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmq_store.base.io._io import ProbeIo

_CLOCK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


@contextmanager
def clock_hook(io: ProbeIo, before: Callable[[], int | None]) -> Iterator[None]:
    """While it lasts, every reading of the monotonic clock, in any thread, calls `before` first (with the GIL), and is as many
    ns later as that returns."""
    slot = ctypes.c_void_p.from_address(io.clock_slot)
    original = slot.value
    real = _CLOCK(original)

    def read(ctx: int) -> int:
        later = before() or 0
        return real(ctx) + later

    hook = _CLOCK(read)
    slot.value = ctypes.cast(hook, ctypes.c_void_p).value
    try:
        yield
    finally:
        slot.value = original
        _kept.append(hook)      # a thread may be about to call it


_kept: list[object] = []

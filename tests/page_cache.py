"""What the page cache holds of a file."""
import ctypes
import mmap
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def cached(file: Path) -> int:
    """How many pages of the file the page cache holds; asking brings none in."""
    with open(file, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        at = (ctypes.c_char * len(m)).from_buffer(m)
        pages = ctypes.create_string_buffer(len(m) // mmap.PAGESIZE)
        if LIBC.mincore(ctypes.addressof(at), len(m), pages) < 0:
            raise OSError(ctypes.get_errno(), "mincore")
        del at
        return sum(p & 1 for p in pages.raw[:-1])

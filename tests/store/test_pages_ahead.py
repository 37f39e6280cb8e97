"""Pages of the log ahead of the writer: in the page cache under synchronous flush, mapped as well under segment_warm."""
import ctypes
import mmap
import re
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.soon import until

SIZE = 32 << 20
AHEAD = 14 << 20         # of the sixteen MiB that are kept ready; more than one fault reads ahead
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def cached(file):
    """How many pages of the file the page cache holds; asking brings none in."""
    with open(file, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        at = (ctypes.c_char * len(m)).from_buffer(m)
        pages = ctypes.create_string_buffer(len(m) // mmap.PAGESIZE)
        if LIBC.mincore(ctypes.addressof(at), len(m), pages) < 0:
            raise OSError(ctypes.get_errno(), "mincore")
        del at
        return sum(p & 1 for p in pages.raw[:-1])


def mapped(file):
    """KiB of the file in this process's page tables."""
    smaps = Path("/proc/self/smaps").read_text()
    return sum(int(n) for n in re.findall(rf"{re.escape(str(file))}\n(?:[^\n]*\n)*?Rss: +(\d+) kB", smaps))


def first_file(store):
    return Path(store.path) / "commitlog" / f"{0:020d}"


@pytest.mark.parametrize("prezero", ["off", "window", "full"])
@pytest.mark.parametrize("write", [{"write_path": "mmap"}, {"write_path": "pool", "flush_backend": "fdatasync"}],
                         ids=lambda write: write["write_path"])
def test_a_sync_finds_small_pages_in_the_cache(tmp_path, write, prezero):
    """Left to page faults, read-ahead makes folios of up to 2 MiB, and every sync of one message writes a whole one."""
    with MessageStore.open(tmp_path / "s", flush_mode="sync", segment_prezero=prezero, segment_size_bytes=SIZE, **write) as s:
        s.put("T", b"x")
        until(lambda: cached(first_file(s)) >= AHEAD // mmap.PAGESIZE)


def test_warm_maps_them(tmp_path):
    with MessageStore.open(tmp_path / "s", segment_warm=True, segment_size_bytes=SIZE) as s:
        s.put("T", b"x")
        until(lambda: mapped(first_file(s)) >= AHEAD // 1024)

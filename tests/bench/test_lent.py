"""bench/load/lent.py: memory that a host lends before something is measured."""
import mmap
from types import SimpleNamespace

import psutil

from bench.load import lent

MIB = 1 << 20


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def test_it_is_there_until_it_is_given_back():
    before = resident()
    with lent.Lent(64) as memory:
        assert resident() - before > 60 * MIB
        memory.give_back()
        assert resident() - before < 30 * MIB
        memory.give_back()
    with lent.Lent(64):
        pass
    assert resident() - before < 30 * MIB


def test_a_machine_keeps_half_of_what_it_has(monkeypatch):
    """Also where that is no whole number of pages, or nothing."""
    sizes = []
    monkeypatch.setattr(lent.psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * MIB + 3))
    monkeypatch.setattr(lent.mmap, "mmap", lambda fd, size, flags: sizes.append(size) or bytearray(size))

    lent.Lent(100)
    lent.Lent(0)
    assert sizes == [4 * MIB] and sizes[0] % mmap.PAGESIZE == 0

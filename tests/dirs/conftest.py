"""A store over several directories: small files, so that a few dozen messages fill some in each."""
import os
from pathlib import Path

import pytest

from rmq_store import MessageStore

SEGMENT = 65536
SIZES = {"segment_size_bytes": SEGMENT, "consumequeue_file_size_bytes": 2000, "index_slots": 16, "index_entries_max": 96}


class Several:
    """A root with its log in directories `a`, `b`, ... beside it, each in a directory that stands for a disk."""

    def __init__(self, place: Path, names: str) -> None:
        self.place, self.root = place, place / "root"
        self.logs = [place / name / "commitlog" for name in names]

    def options(self, **more: object) -> dict[str, object]:
        return {**SIZES, "commitlog_path": ",".join(map(str, self.logs)), **more}

    def open(self, **more: object) -> MessageStore:
        return MessageStore.open(self.root, **self.options(**more))

    def fill(self, count: int, topic: str = "T", size: int = 3000, **more: object) -> None:
        """Message i has a body that begins with i, and the key k<i>."""
        with self.open(**more) as store:
            begin = store.max_offset(topic, 0)
            for i in range(begin, begin + count):
                store.put(topic, i.to_bytes(4, "big") + bytes([1 + i % 255]) * size, keys=f"k{i}")

    def files(self) -> dict[str, list[int]]:
        """By directory: the numbers of its files, as if counted from 0."""
        return {log.parent.name: sorted(int(name) // SEGMENT for name in os.listdir(log)) if log.is_dir() else []
                for log in self.logs}

    def lose(self, name: str) -> Path:
        """Its disk is gone; returns where it is."""
        away = self.place / f"{name}-gone"
        (self.place / name).rename(away)
        return away

    def bring_back(self, name: str) -> None:
        (self.place / f"{name}-gone").rename(self.place / name)


def numbers(messages: object) -> list[int]:
    return [int.from_bytes(bytes(m.body)[:4], "big") for m in messages]     # type: ignore[attr-defined]


def content(place: Path) -> dict[str, bytes]:
    """Every file under a directory, and its bytes."""
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.fixture
def two(tmp_path: Path) -> Several:
    return Several(tmp_path, "ab")


@pytest.fixture
def three(tmp_path: Path) -> Several:
    return Several(tmp_path, "abc")

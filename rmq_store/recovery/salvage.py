"""Copies of what a store takes away, under STORE/.salvage/: made before it goes, and never one in the place of another.

The opening thread, or repair's. Durable when `keep` returns.
"""
import os
import re

from rmq_store.io.files import ControlFiles, open_regular

__all__ = ["DIRECTORY", "keep", "offset_of"]

DIRECTORY = ".salvage"
_NAME = re.compile(r"([0-9]{20})(\.[0-9]+)?")


def keep(files: ControlFiles, root: str, name: str, data: bytes) -> str:
    """Writes `data` to .salvage/<name>, or, where other bytes have that name, to <name>.2, .3 ...; where the same bytes have it
    they stay. Returns the path. Raises OSError."""
    directory = os.path.join(root, DIRECTORY)
    if files.mkdir(directory):
        files.sync_dir(root)
    number = 1
    while True:
        path = os.path.join(directory, name if number == 1 else f"{name}.{number}")
        if not os.path.lexists(path):
            files.write_new(directory, os.path.basename(path), data)
            return path
        if _holds(path, data):
            return path
        number += 1


def offset_of(name: str) -> int | None:
    """The log offset of what recovery kept under this name; None for another name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def _holds(path: str, data: bytes) -> bool:
    if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) != len(data):
        return False
    with open(path, "rb", opener=open_regular) as file:
        return file.read() == data

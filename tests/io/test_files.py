"""Small files through ControlFiles: only regular ones, and an error that says what stands in their place."""
import errno
import os

import pytest

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles

FLAGS = [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(("kind", "code", "words"), [
    ("directory", errno.EISDIR, "a directory"), ("link", errno.ELOOP, "a symbolic link"),
    ("dangling", errno.ELOOP, "a symbolic link"), ("pipe", errno.ENXIO, "a pipe")])
def test_what_is_no_file_is_named_and_makes_nobody_wait(tmp_path, kind, code, words, flags):
    path = tmp_path / "f"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "target")
        if kind == "link":
            (tmp_path / "target").write_bytes(b"x")
    with pytest.raises(OSError, match=words) as refused:
        ControlFiles(IoTable()).open(str(path), flags)
    assert (refused.value.errno, refused.value.filename) == (code, str(path))
    assert kind != "dangling" or not (tmp_path / "target").exists()

"""What is no file, or holds no text, in the places of a job's files: a typed error that names it, and nothing waits."""
import os

import pytest

from rmq_store.errors import CorruptionError
from rmq_store.spark import staging
from rmq_store.spark.jobs.export import _checksum, _write_manifest, read_manifest, verify_export


@pytest.mark.parametrize("kind", ["pipe", "nothing", "shape", "text"])
def test_a_manifest_of_an_export_that_is_none(tmp_path, kind):
    path = tmp_path / "_manifest.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "nothing":
        path.touch()
        os.truncate(path, 1 << 34)
    else:
        path.write_text('{"files": {}, "positions": []}' if kind == "shape" else "[" * 100_000)
    with pytest.raises((OSError, CorruptionError), match=str(path)):
        read_manifest(str(tmp_path))


def test_a_part_of_an_export_that_was_moved_is_read_where_it_is(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"rows")
    (tmp_path / "part").symlink_to(tmp_path / "elsewhere")
    size, crc = _checksum(str(tmp_path / "part"))
    _write_manifest(str(tmp_path), {"files": [{"file": "part", "rows": 1, "bytes": size, "crc32c": crc}], "positions": {}})
    assert verify_export(str(tmp_path)) == 1


def test_a_pipe_in_the_place_of_what_a_job_reads(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    path = str(tmp_path / "pipe")
    for call in (lambda: staging.read_journal(path), lambda: staging.verify(staging.Staged(path, 1, 1, 0)),
                 lambda: list(staging.pieces(staging.Staged(path, 1, 1, 0))), lambda: _checksum(path),
                 lambda: staging.sync(path)):
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.filename == path or path in str(refused.value)


def test_a_staging_file_of_nothing(tmp_path):
    path = tmp_path / "part.stage"
    path.touch()
    os.truncate(path, (1 << 34) + staging._FOOTER.size)
    with pytest.raises(CorruptionError, match="a hole"):
        staging.verify(staging.Staged(str(path), 1 << 34, 1, 0))

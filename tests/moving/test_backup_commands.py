"""The commands backup and restore, a restore that is broken off more than once, and both as an ordinary user."""
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmq_store
from rmq_store import MessageStore, errors, restore
from tests.moving.conftest import SMALL, rows
from tests.moving.test_backup import fill, names, quiet


def test_a_restore_killed_while_it_clears_what_one_before_left(tmp_path, monkeypatch):
    """Twice broken off: the third found a directory without the mark, and took it for somebody else's."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 400)
        store.backup(tmp_path / "b")

    class Killed(BaseException):
        pass

    def broken_off(calls):
        left = itertools.count(calls, -1)
        for name in ("unlink", "rmdir"):
            real = getattr(os, name)

            def step(*args, real=real, **more):
                if next(left) <= 0:
                    raise Killed
                return real(*args, **more)

            monkeypatch.setattr(os, name, step)
        with pytest.raises(Killed):
            restore(tmp_path / "b", tmp_path / "r")
        monkeypatch.undo()

    for calls in range(6):
        with monkeypatch.context() as patch:
            patch.setattr(rmq_store.services.backup.backup.os.path, "getsize", lambda path: 0)  # every byte there, and refused
            with pytest.raises(errors.CorruptionError):
                restore(tmp_path / "b", tmp_path / "r")
        (tmp_path / "r.partial" / "commitlog").mkdir(exist_ok=True)
        for n in range(8):
            (tmp_path / "r.partial" / "commitlog" / f"{n}").touch()
        broken_off(calls)
    restore(tmp_path / "b", tmp_path / "r")
    assert quiet(tmp_path / "r") == []


def test_the_commands(tmp_path, rmqstore):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 1000)
        code, out, err = rmqstore("backup", tmp_path / "s", tmp_path / "b")
        assert (code, err) == (0, "") and "the log from 0 to" in out
        assert rmqstore("backup", tmp_path / "s", tmp_path / "b", "--json")[0] == 0
    code, out, err = rmqstore("restore", tmp_path / "b")
    assert (code, err) == (0, "") and len(out.splitlines()) == 3
    assert rmqstore("restore", tmp_path / "b", "--check") == (0, f"backup {names(tmp_path / 'b')[-1]}: 0 findings\n", "")
    code, out, _ = rmqstore("restore", tmp_path / "b", tmp_path / "r", "--backup", names(tmp_path / "b")[0])
    assert code == 0 and rows(tmp_path / "r") == rows(tmp_path / "s")
    assert rmqstore("restore", tmp_path / "b", tmp_path / "r")[0] == 3
    assert rmqstore("backup", tmp_path / "s", tmp_path / "s")[0] == 64


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root")
def test_as_an_ordinary_user(memory_disk):
    """In memory, where only what belongs to that user may be written."""
    place = memory_disk / "home"
    place.mkdir()
    memory_disk.chmod(0o755)
    os.chown(place, 65534, 65534)
    script = """
import sys
from rmq_store import MessageStore, backup, check_backup, copy_messages, restore
with MessageStore.open("s", segment_size_bytes=1 << 16) as store:
    for i in range(1000): store.put("T", b"%d" % i * 9)
    store.backup("b"); store.backup("b")
restore("b", "r"); copy_messages("r", "c", as_is=True); copy_messages("r", "d", segment_size_bytes=1 << 16)
assert check_backup("b") == []
with MessageStore.open("c", readonly=True) as c, MessageStore.open("d", readonly=True) as d:
    assert c.total("T", 0) == d.total("T", 0) == 1000
print("done")
"""
    paths = ":".join([str(Path(rmq_store.__file__).parents[1]), *(p for p in sys.path if p.endswith("site-packages"))])
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):     # the first one may be root's own
        try:
            done = subprocess.run([python, "-c", script], cwd=place, user=65534, group=65534, extra_groups=[], text=True,
                                  capture_output=True, env={**os.environ, "PYTHONPATH": paths, "HOME": str(place)})
            break
        except (PermissionError, FileNotFoundError):
            pass
    else:
        pytest.skip("there is no Python for other users here")
    if "Permission denied" in done.stderr or "No module named" in done.stderr:
        pytest.skip("this checkout is not readable for other users")
    assert done.stdout == "done\n", done.stderr

"""Smoke suite of an installed rmq_store: python -I smoke.py, with nothing but the wheel and what it requires.

A plain program, because pytest is not among the library's requirements. tools/wheel runs it from a fresh wheel; it fits any
installation. Each check prints one line; the first that fails ends the run with its traceback.
"""
import importlib
import importlib.metadata
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import rmq_store
from rmq_store._extensions import NAMES

PACKAGE = Path(rmq_store.__file__).parent
# Modules that need an extra, or pytest.
EXTRAS = ("rmq_store.spark", "rmq_store.metrics", "rmq_store.telemetry", "rmq_store.pytest_plugin")


def no_compiler(_):
    assert not any(shutil.which(name) for name in ("cc", "gcc", "clang")), os.environ["PATH"]


def installed_not_a_checkout(_):
    assert "site-packages" in PACKAGE.parts, PACKAGE
    assert (PACKAGE / "py.typed").is_file()
    assert importlib.metadata.version("rmq_store") == rmq_store.__version__
    assert [point.value for point in importlib.metadata.entry_points(group="pytest11")] == ["rmq_store.pytest_plugin"]


def licences_inside(_):
    files = {str(f).partition("licenses/")[2] for f in importlib.metadata.files("rmq_store") or []}
    assert files >= {"LICENSE", "NOTICE", "LICENSES/liburing.txt", "LICENSES/libdeflate.txt"}, files


def every_module_imports(_):
    names = [m.name for m in pkgutil.walk_packages([str(PACKAGE)], "rmq_store.")
             if not m.name.endswith("__main__") and not m.name.startswith(EXTRAS)]
    for name in [*names, *NAMES]:
        importlib.import_module(name)


def libraries_linked_statically(_):
    maps = Path("/proc/self/maps").read_text()
    assert "liburing" not in maps and "libdeflate" not in maps


def put_close_reopen_get(path):
    for write_path, flush_mode in (("mmap", "async"), ("pool", "sync")):
        root = path / f"{write_path}-{flush_mode}"
        body = os.urandom(1000)
        options = {"write_path": write_path, "flush_mode": flush_mode, "segment_size_bytes": 1 << 20}
        with rmq_store.MessageStore.open(root, **options) as store:
            for i in range(100):
                store.put("smoke", body, keys=f"key-{i}", tags="even" if i % 2 == 0 else "odd")
            store.flush()
        with rmq_store.MessageStore.open(root, readonly=True) as store:
            assert store.max_offset("smoke", 0) == 100
            got = [(m.queue_offset, bytes(m.body)) for m in store.get("smoke", 0, 90)]
            assert got == [(i, body) for i in range(90, 100)]
            assert [m.queue_offset for m in store.query_key("smoke", "key-42")] == [42]


def command_line(path):
    tool = Path(sys.executable).with_name("rmqstore")
    for command in ([str(tool)], [sys.executable, "-I", "-m", "rmq_store"]):
        done = subprocess.run([*command, "stat", str(path / "mmap-async"), "--json"], capture_output=True, text=True)
        assert done.returncode == 0 and "smoke" in done.stdout, (command, done)
        assert subprocess.run([*command, "no-such-verb"], capture_output=True).returncode == 64


def main():
    with tempfile.TemporaryDirectory() as directory:
        for check in (no_compiler, installed_not_a_checkout, licences_inside, every_module_imports, libraries_linked_statically,
                      put_close_reopen_get, command_line):
            check(Path(directory))
            print(f"smoke: {check.__name__} ok", flush=True)


if __name__ == "__main__":
    main()

"""Running the command line, or some Python, as an ordinary user, also where the tests are root's."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

ROOT = pathlib.Path(__file__).parents[2]
NOBODY = 65534
# All is imported before this process is that user, who may not be allowed to read the interpreter's own files.
_DRIVER = """
import asyncio, contextlib, difflib, encodings, importlib, importlib.readers, importlib.resources, io, json, multiprocessing, os
import pkgutil, queue, sys, threading, tomllib, traceback, warnings
import rmq_store, rmq_store.aio, rmq_store.cli, rmq_store.cli.main, rmq_store.filter.grammar
for package in (rmq_store.cli, rmq_store.access.reader, encodings):
    for found in pkgutil.iter_modules(package.__path__):
        if found.name not in ("mbcs", "oem", "cp65001"):       # of another system
            importlib.import_module(f"{package.__name__}.{found.name}")
user, what, *words = sys.argv[1:]
if user != "-":
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
if what == "-m":
    sys.exit(rmq_store.cli.main.main(words))
sys.argv = ["-c", *words[1:]]
exec(compile(words[0], "<example>", "exec"), {"__name__": "__main__"})
"""


def run(what: str, *words: object, cwd: object = None, timeout: float = 300,
        stdin: str = "") -> subprocess.CompletedProcess[str]:
    """`rmqstore WORDS` ("-m") or `python -c WORDS` ("-c") as an ordinary user: this one, or nobody where this is root."""
    user = str(NOBODY) if os.geteuid() == 0 else "-"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(cwd or "/"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", _DRIVER, user, what, *map(str, words)], cwd=cwd, env=env, capture_output=True,
                          text=True, timeout=timeout, input=stdin)


@contextmanager
def directory() -> Iterator[pathlib.Path]:
    """A directory of that user's; those of pytest are closed to others."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="rmq-first-"))
    try:
        give(place)
        yield place
    finally:
        for folder, _, _ in os.walk(place, topdown=False):
            os.chmod(folder, 0o700)
        shutil.rmtree(place)


def give(place: pathlib.Path) -> None:
    """All below `place` belongs to that user."""
    if os.geteuid() == 0:
        for folder, _, names in os.walk(place):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                os.lchown(path, NOBODY, NOBODY)

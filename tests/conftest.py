"""Fixtures for all rooms: golden stores, a disk of memory, the command line in this process, and a guard that no test leaves
files of its directory open or mapped."""
import contextlib
import gc
import io
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden_store import GoldenCase, unpack
from tests.thinned import thin
from tests.trace.checker import RULES
from tests.trace.outside import watch_commits
from tests.trace.recorder import Recorder

FILES = 8192


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what runs in its background with Ctrl-C ignored, children inherit that, and some tests need it back."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Each file of a log that is open has a descriptor, and some tests have a thousand of them.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FILES and (hard < 0 or hard > soft):
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard < 0 else min(FILES, hard), hard))


# Few tests that take long: begun last, one worker would be at them when the others have ended.
LONG = ("interop", "power", "fuzz", "native", "trace", "pytest_plugin", "regress", "crash", "fault", "property", "threads")


@pytest.hookimpl(tryfirst=True)     # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long rooms first, of all others the order stays (pytest-xdist: with --no-loadscope-reorder). A worker takes a whole
    file (--dist loadgroup), and one of them all files of `interop`: they share three JVMs. In CI, see thinned.py."""
    if os.environ.get("CI"):
        gone = thin(items)
        if gone:
            config.hook.pytest_deselected(items=gone)
    items.sort(key=lambda item: LONG.index(item.path.parent.name) if item.path.parent.name in LONG else len(LONG))
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        room = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group(room if room == "interop" else f"{room}/{item.path.name}"))


def pytest_collection_finish() -> None:
    """Eight thousand items and what they import stay until the end: no collection of garbage looks at them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], GoldenCase]:
    """golden("v4-plain") unpacks that case under tmp_path; a second call with the same name gives a second copy."""
    copies: list[str] = []

    def make(name: str) -> GoldenCase:
        into = tmp_path / f"golden-{name}-{len(copies)}"
        copies.append(name)
        return unpack(name, into)

    return make


@pytest.fixture
def memory_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory, for what syncs a lot and proves nothing about a device; an ordinary one where there is no room."""
    shm = "/dev/shm"
    if os.access(shm, os.W_OK) and os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize > 256 << 20:
        with tempfile.TemporaryDirectory(dir=shm, prefix="rmq-test-") as directory:
            yield Path(directory)
    else:
        yield tmp_path_factory.mktemp("disk")


@pytest.fixture
def rmqstore() -> Callable[..., tuple[int | str | None, str, str]]:
    """rmqstore("dump", path) -> (exit code, standard output, standard error)."""
    from rmq_store.cli.main import main

    def call(*argv: object) -> tuple[int | str | None, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code: int | str | None = main([str(a) for a in argv])
            except SystemExit as end:
                code = end.code
        return code, out.getvalue(), err.getvalue()

    return call


def held(directory: str) -> set[str]:
    """Files under `directory` that this process has open or mapped, as "fd 7: path" or "map: path"."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the descriptor of this very listing
            continue
        if path.startswith(directory):
            found.add(f"fd {fd}: {path}")
    with open("/proc/self/maps") as maps:
        found |= {f"map: {line[line.index(directory):].rstrip()}" for line in maps if directory in line}
    return found


@pytest.fixture(autouse=True)
def nothing_held(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that used tmp_path must have closed and unmapped all of it when it ends, its fixtures' teardown included.

    After a failure nothing is asked: the traceback keeps the test's objects alive.
    """
    if "tmp_path" not in request.fixturenames:
        yield
        return
    directory = f"{request.getfixturevalue('tmp_path')}/"
    failures = request.session.testsfailed
    yield
    if request.session.testsfailed > failures or not held(directory):
        return
    gc.collect()
    left = held(directory)
    assert not left, f"still held after the test: {sorted(left)}"


# Where stores are opened whose syncs mean something; what runs in other processes, and in memory alone, is not seen.
TRACED = {"batchqueue", "broker", "cleaning", "cli", "compaction", "config", "consumequeue", "consumer", "crash", "delay",
          "dispatch", "fault", "flush", "hooks", "index", "integrity", "io", "light", "network", "property", "reader",
          "recovery", "regress", "spark", "statistics", "store", "threads", "timer", "transaction", "waiting", "writer"}


@pytest.fixture(autouse=True)
def traced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder | None]:
    """Every store of the test runs on a probe, and what it tells is judged against the trace (tests/trace/checker.py)."""
    marker = request.node.get_closest_marker("untraced")
    room = request.path.parent.name
    if marker is not None or room not in TRACED or request.node.get_closest_marker("spark"):
        yield None
        return
    recorder = Recorder()
    recorder.watch(monkeypatch)
    if room == "spark":
        watch_commits(monkeypatch, recorder.table)
    failures = request.session.testsfailed
    yield recorder
    if request.session.testsfailed == failures:
        findings = recorder.findings(RULES)
        assert not findings, "the trace of this test shows:\n  " + "\n  ".join(findings[:5])

"""The fixtures of rmq_store.pytest_plugin, in runs of pytest of their own, in projects of their own."""
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DISK_MAX = 10 << 20


@pytest.fixture
def run(tmp_path):
    """run(text of a test file) -> (outcomes, output) of pytest in a directory that has nothing else."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")

    def call(text, *words, plugin=("-p", "rmq_store.pytest_plugin"), **environment):
        (tmp_path / "test_it.py").write_text(text)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        env.pop("PYTEST_ADDOPTS", None)
        done = subprocess.run([sys.executable, "-m", "pytest", *plugin, "--basetemp", tmp_path / "base", *words, "test_it.py"],
                              cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        counts = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|errors?)\b", done.stdout.splitlines()[-1])}
        return counts, done.stdout + done.stderr
    return call


PUT = """
import os

def taken(directory):
    return sum(os.lstat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(directory) for name in names)

def used(store):
    for queue_id in range(4):
        assert store.put("orders", b"x" * 1000, queue_id=queue_id, keys="k", wait=True).status.name == "PUT_OK"
    store.wait_dispatched(timeout=10)
    assert [bytes(m.body) for m in store.get("orders", 3, 0)] == [b"x" * 1000]
    return taken(store.path)
"""


def test_a_store_is_open_small_and_in_the_test_s_directory(run):
    counts, output = run(PUT + f"""
import pytest

@pytest.mark.parametrize("write_path", ["mmap", "pool"])
@pytest.mark.parametrize("flush_mode", ["async", "sync"])
def test_size(rocketmq_store_factory, write_path, flush_mode):
    store = rocketmq_store_factory(write_path=write_path, flush_mode=flush_mode)
    assert 0 < used(store) <= {DISK_MAX}

def test_place(rocketmq_store, tmp_path):
    assert rocketmq_store.path == str(tmp_path / "store") and not rocketmq_store.closed
    assert 0 < used(rocketmq_store) <= {DISK_MAX}

kept = []

def test_keeps(rocketmq_store):
    kept.append(rocketmq_store)

def test_was_closed():
    assert kept[0].closed and not os.path.exists(os.path.join(kept[0].path, "abort"))
""")
    assert counts == {"passed": 7}, output


def test_options_by_marker_and_the_nearest_one_counts(run):
    counts, output = run("""
import pytest

pytestmark = pytest.mark.rocketmq_store(flush_mode="sync", delay_levels="1s 2s")

@pytest.mark.rocketmq_store(flush_mode="async")
def test_options(rocketmq_store):
    assert (rocketmq_store.options.flush_mode, len(rocketmq_store.options.delay_levels)) == ("async", 2)

def test_module(rocketmq_store):
    assert rocketmq_store.options.flush_mode == "sync"

@pytest.mark.rocketmq_store(profile="dev", mapedFileSizeCommitLog=1 << 20)
def test_upstream_s_names_and_another_profile(rocketmq_store):
    assert (rocketmq_store.options.segment_size_bytes, rocketmq_store.options.index_slots) == (1 << 20, 50_000)

@pytest.mark.rocketmq_store("sync")
def test_by_place(rocketmq_store):
    pass

@pytest.mark.rocketmq_store(flush_mod="sync")
def test_wrong(rocketmq_store):
    pass
""")
    assert counts == {"passed": 3, "errors": 2}, output
    assert "give options by name" in output and "did you mean flush_mode?" in output


def test_the_environment_of_whoever_runs_it_does_not_count(run):
    counts, output = run("""
def test_it(rocketmq_store):
    assert rocketmq_store.options.write_path == "mmap"
""", RMQ_STORE_WRITE_PATH="pool", RMQ_STORE_PROFILE="no-such")
    assert counts == {"passed": 1}, output


def test_reopen_keeps_messages_and_options(run):
    counts, output = run("""
import pytest
from rmq_store.errors import StoreLocked

def test_again(rocketmq_store_factory, tmp_path):
    store = rocketmq_store_factory(flush_mode="sync")
    store.put("orders", b"first")
    with pytest.raises(StoreLocked):
        rocketmq_store_factory()
    again = rocketmq_store_factory.reopen(store, write_path="pool")
    assert store.closed and again.options.flush_mode == "sync" and again.options.write_path == "pool"
    again = rocketmq_store_factory.reopen(again)
    assert again.options.write_path == "pool" and bytes(again.get("orders", 0, 0)[0].body) == b"first"
    other = rocketmq_store_factory("other")
    assert other.path == str(tmp_path / "other") and other.options.flush_mode == "async"

def test_a_stranger_s(rocketmq_store_factory, tmp_path):
    from rmq_store import MessageStore
    with MessageStore.open(tmp_path / "mine", profile="test") as store:
        with pytest.raises(ValueError, match="reopen one that it opened"):
            rocketmq_store_factory.reopen(store)
""")
    assert counts == {"passed": 2}, output


def test_an_error_in_the_background_fails_the_test(run):
    counts, output = run("""
from rmq_store.events import Event, emit

def say(store):
    emit(Event.TASK_FAILED, task="cleaning", path=store.path, error="planted")

def test_fails(rocketmq_store):
    say(rocketmq_store)

def test_means_it(rocketmq_store_factory):
    say(rocketmq_store_factory())
    assert "planted" in rocketmq_store_factory.errors[0]
    rocketmq_store_factory.errors.clear()

def test_is_not_told_of_the_last_one(rocketmq_store):
    pass

def test_warnings_are_none(rocketmq_store):
    emit(Event.DISPATCH_BEHIND, size=1)
""")
    assert counts == {"passed": 4, "error": 1}, output
    assert "rmq_store.store: the task cleaning of " in output and "planted" in output


def test_all_are_closed_where_one_cannot_be(run):
    """The first error is raised, and nobody is left open."""
    counts, output = run("""
kept = []

def test_it(monkeypatch, rocketmq_store_factory):        # so that what is patched stays so while the stores are closed
    kept.extend(rocketmq_store_factory(name) for name in ("one", "two", "three"))
    close = type(kept[1]).close

    def broken(self, **more):
        close(self, **more)
        if self is kept[1]:
            raise OSError(5, "planted")
    monkeypatch.setattr(type(kept[1]), "close", broken)

def test_closed():
    assert [store.closed for store in kept] == [True] * 3
""")
    assert counts == {"passed": 2, "error": 1} and "planted" in output, output


def test_a_run_that_uses_no_store_imports_none(run):
    counts, output = run("""
import sys

def test_it():
    ours = {name for name in sys.modules if name.startswith("rmq_store")}
    assert ours <= {"rmq_store", "rmq_store.modules", "rmq_store.version", "rmq_store.pytest_plugin"}, ours
    assert "rmq_store.pytest_plugin" in ours and "psutil" not in sys.modules
""")
    assert counts == {"passed": 1}, output


def entry_points(tmp_path):
    """What an installation would have beside the package, made from pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        (points,) = tomllib.load(file)["project"]["entry-points"].values()
    info = tmp_path / "site" / "rmq_store-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rmq_store\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    return f"{tmp_path / 'site'}{os.pathsep}{ROOT}"


@pytest.mark.parametrize("named", [(), ("-p", "rmq_store.pytest_plugin")])
def test_an_installed_package_is_found_and_may_be_named_besides(run, tmp_path, named):
    counts, output = run("def test_it(rocketmq_store):\n    pass\n", plugin=named, PYTHONPATH=entry_points(tmp_path))
    assert counts == {"passed": 1}, output


def test_it_can_be_switched_off(run, tmp_path):
    counts, output = run("import sys\n\ndef test_it():\n    assert 'rmq_store' not in sys.modules\n",
                         plugin=("-p", "no:rmq_store.pytest_plugin"), PYTHONPATH=entry_points(tmp_path))
    assert counts == {"passed": 1}, output


def test_the_examples_of_the_page(run):
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    counts, output = run("\n\n".join(examples))
    assert counts == {"passed": sum(example.count("def test_") for example in examples)}, output
    assert len(examples) >= 4


def test_brokers_of_one_test(run):
    """A broker that is opened again is where it was; a second one is in the routes of the first one's name server."""
    counts, output = run("""
import socket
import pytest
from rmq_store.errors import StoreLocked
from rmq_store.remoting.frame import Frame, encode

def cluster(broker):
    host, port = broker.namesrv_address.split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(encode(Frame(106, 1)))
        return sock.recv(10_000)

def test_it(rocketmq_broker_factory, tmp_path):
    first = rocketmq_broker_factory(brokerName="b1", listen="127.0.0.1:0")
    assert first.store.path == str(tmp_path / "broker")
    with pytest.raises(StoreLocked):
        rocketmq_broker_factory()
    rocketmq_broker_factory("other", brokerName="b2", namesrv=first.namesrv_address)
    while b"b2" not in cluster(first):
        pass
    for name in ("b3", "b4"):
        before = first.address, first.namesrv_address
        first.store.put("T", b"kept")
        first = rocketmq_broker_factory.reopen(first, brokerName=name)
        assert (first.address, first.namesrv_address) == before
        assert name.encode() in cluster(first)
    assert first.store.total("T", 0) == 2
    rocketmq_broker_factory.errors.clear()      # of the other one, whose name server went

def test_a_stranger_s(rocketmq_broker_factory, tmp_path):
    from rmq_store import Broker
    with Broker.open(tmp_path / "x", profile="test") as broker:
        with pytest.raises(ValueError, match="reopen one that it opened"):
            rocketmq_broker_factory.reopen(broker)
        assert not broker.store.closed

def test_with_the_plain_fixture(rocketmq_broker, rocketmq_broker_factory):
    with pytest.raises(StoreLocked):
        rocketmq_broker_factory("broker")
    assert rocketmq_broker_factory.reopen(rocketmq_broker).address == rocketmq_broker.address
""")
    assert counts == {"passed": 3}, output


def test_a_broker_for_a_test(run):
    counts, output = run("""
import socket
import pytest
from rmq_store.remoting.frame import Frame, encode

@pytest.mark.rocketmq_broker(brokerName="b7")
def test_it(rocketmq_broker, tmp_path):
    assert rocketmq_broker.store.path == str(tmp_path / "broker")
    host, port = rocketmq_broker.namesrv_address.split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(encode(Frame(106, 1)))
        assert b"b7" in sock.recv(10_000)

def test_an_error_is_seen(rocketmq_broker):
    import logging
    logging.getLogger("rmq_store.broker").error("planned")

@pytest.mark.rocketmq_broker("x")
def test_wrong(rocketmq_broker):
    pass
""", RMQ_STORE_FLUSH_MODE="wrong")
    assert counts == {"passed": 2, "errors": 2}, output
    assert "planned" in output and "give options by name" in output

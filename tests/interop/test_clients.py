"""Unchanged Java clients (4.9.8 and 5.3.3) against `rmqstore serve`: tools/interop/clients/Clients.java has the scenarios."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "clients_with_rocketmq.sh"
SECONDS = 600           # the first start may download the jars
SCENARIOS = ("push", "tags", "query", "delay", "retry", "transaction", "sql", "lite", "broadcast", "orderly", "request")


@pytest.fixture
def served(tmp_path):
    """The name server's address of a broker in a process of its own."""
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq_store", "serve", str(tmp_path / "store"), "--profile", "test", "--listen", "127.0.0.1:0",
         "--namesrv-listen", "127.0.0.1:0", "--ready-file", str(ready), "-o", "transactionTimeOut=1000", "-o",
         "transactionCheckInterval=1000"], stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        assert process.stdout.readline()
        yield json.loads(ready.read_text())["namesrv"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def run(*arguments):
    """The lines that the program printed. Skips where it cannot run."""
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode == 77:
        pytest.skip(f"the real clients cannot run here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines(), done.stderr


def scenarios(version, address, *names):
    lines, errors = run("--rocketmq", version, address, *names)
    said = [json.loads(line) for line in lines if line.startswith("{")]
    assert [(one["scenario"], one["ok"], one["said"]) for one in said] == [(name, True, "") for name in names], errors[-4000:]


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_java_clients_send_and_consume(served, version):
    scenarios(version, served, *SCENARIOS)

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
    """The addresses of a broker in a process of its own: {"listen": ..., "namesrv": ...}."""
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq_store", "serve", str(tmp_path / "store"), "--profile", "test", "--listen", "127.0.0.1:0",
         "--namesrv-listen", "127.0.0.1:0", "--ready-file", str(ready), "-o", "transactionTimeOut=1000", "-o",
         "transactionCheckInterval=1000"], stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        assert process.stdout.readline()
        yield json.loads(ready.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def run(*arguments):
    """The lines that the program printed, and its errors. Skips where it cannot run."""
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode == 77:
        pytest.skip(f"the real clients cannot run here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines(), done.stderr


def scenarios(version, address, *names):
    lines, errors = run("--rocketmq", version, address, *names)
    said = [json.loads(line) for line in lines if line.startswith("{")]
    assert [(one["scenario"], one["ok"], one["said"]) for one in said] == [(name, True, "") for name in names], errors[-4000:]


@pytest.mark.slow           # two JVMs, of half a minute each
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_java_clients_send_and_consume(served, version):
    scenarios(version, served["namesrv"], *SCENARIOS)


@pytest.mark.slow           # a JVM with a dozen commands
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_mqadmin_administers(served, version):
    """What each command prints of a topic with ten messages and of a group that read them."""
    scenarios(version, served["namesrv"], "push")
    names, broker = ["-n", served["namesrv"]], ["-b", served["listen"]]
    commands = [["clusterList", *names], ["brokerStatus", *names, *broker], ["topicList", *names],
                ["updateTopic", *names, *broker, "-t", "Adm", "-r", "3", "-w", "3"], ["topicRoute", *names, "-t", "Adm"],
                ["topicStatus", *names, "-t", "Push"], ["consumerProgress", *names, "-g", "push-c"],
                ["queryMsgByKey", *names, "-t", "Push", "-k", "key1"], ["updateSubGroup", *names, *broker, "-g", "AdmG"],
                ["getBrokerConfig", *names, *broker],
                ["updateBrokerConfig", *names, *broker, "-k", "maxMessageSize", "-v", "100000"],
                ["resetOffsetByTime", *names, "-g", "push-c", "-t", "Push", "-s", "0"], ["statsAll", *names, "-t", "Push"],
                ["deleteTopic", *names, "-c", "DefaultCluster", "-t", "Adm"], ["topicRoute", *names, "-t", "Adm"]]
    lines, errors = run("--rocketmq", version, "--admin", *[word for c in commands for word in (*c, ",")][:-1])
    said: dict[str, list[str]] = {}
    for line in "\n".join(lines).replace("== ", "\n== ").splitlines():
        if line.startswith("== "):
            said[name := line[3:]] = []
        elif said:
            said[name].append(line)
    rows = {name: [line.split() for line in found] for name, found in said.items()}
    assert ["DefaultCluster", "broker-a", "0", served["listen"]] == rows["clusterList"][1][:4]
    assert ["brokerVersionDesc", ":", "V5_3_3"] in rows["brokerStatus"]
    assert {"Push", "TBW102", "%RETRY%push-c"} <= {row[0] for row in rows["topicList"] if row}
    assert sum(int(row[3]) for row in rows["topicStatus"] if row and row[0] == "broker-a") == 10, errors
    progress = [row for row in rows["consumerProgress"] if row and row[0] == "Push"]
    assert len(progress) == 4 and sum(int(row[3]) for row in progress) == 10
    assert any(row[1:] == ["0", "0"] or len(row) == 3 for row in rows["queryMsgByKey"][1:]), rows["queryMsgByKey"]
    assert ["brokerName", "=", "broker-a"] in rows["getBrokerConfig"]
    assert "success" in " ".join(said["updateBrokerConfig"])
    assert sum(row[0] == "broker-a" for row in rows["resetOffsetByTime"] if row) == 4
    assert [row[2] for row in rows["statsAll"] if row and row[0] == "Push"] == ["10"]
    assert "success" in " ".join(said["deleteTopic"])
    assert "No topic route info" in errors

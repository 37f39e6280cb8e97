"""Unchanged Java clients (4.9.8 and 5.3.3) against `rmqstore serve`: tools/interop/clients/Clients.java has the scenarios."""
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "clients_with_rocketmq.sh"
SECONDS = 600           # the first start may download the jars
SCENARIOS = ("push", "tags", "query", "delay", "retry", "transaction", "sql", "lite", "broadcast", "orderly", "request")


CERTIFICATES = Path(__file__).parents[1] / "broker" / "certificates"
ACCOUNTS = """
accounts:
  - {accessKey: service, secretKey: twelve-chars, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB, topicPerms: [Denied=DENY]}
  - {accessKey: operator, secretKey: fourteen-chars, admin: true}
"""


@pytest.fixture
def served(tmp_path):
    with serving(tmp_path) as addresses:
        yield addresses


@contextmanager
def serving(tmp_path, *options):
    """The addresses of a broker in a process of its own: {"listen": ..., "namesrv": ...}."""
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq_store", "serve", str(tmp_path / "store"), "--profile", "test", "--listen", "127.0.0.1:0",
         "--namesrv-listen", "127.0.0.1:0", "--ready-file", str(ready), "-o", "transactionTimeOut=1000", "-o",
         "transactionCheckInterval=1000", *(word for option in options for word in ("-o", option))],
        stdout=subprocess.PIPE, env=dict(os.environ))
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


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_java_clients_send_and_push(served, version):
    """What CI has of the next test."""
    scenarios(version, served["namesrv"], "push")


@pytest.mark.slow           # two JVMs, of half a minute each
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_java_clients_send_and_consume(served, version):
    scenarios(version, served["namesrv"], *SCENARIOS)


@pytest.fixture
def guarded(tmp_path):
    """A broker that takes TLS from clients with certificates alone, and requests that an account signed."""
    pytest.importorskip("yaml")
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    with serving(tmp_path, "aclEnable=true", f"aclFile={tmp_path / 'plain_acl.yml'}", "tls.server.mode=enforcing",
                 f"tls.server.certPath={CERTIFICATES / 'server.pem'}", f"tls.server.keyPath={CERTIFICATES / 'server.key'}",
                 "tls.server.need.client.auth=require", f"tls.server.trustCertPath={CERTIFICATES / 'ca.pem'}") as addresses:
        yield addresses


def java_options(monkeypatch, **properties):
    """warm: see Clients.java."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(f"-D{name}={value}" for name, value in properties.items()))


TLS = {"tls.enable": "true", "tls.test.mode.enable": "false", "tls.client.authServer": "true",
       "tls.client.trustCertPath": CERTIFICATES / "ca.pem", "tls.client.certPath": CERTIFICATES / "client.pem",
       "tls.client.keyPath": CERTIFICATES / "client.key", "warm": 20}


@pytest.mark.slow           # JVMs, of half a minute each
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_java_clients_sign_and_speak_tls(guarded, version, monkeypatch):
    """Both check the other's certificate. Then the same without a certificate of the client, without a key, and with a wrong
    one: nothing is sent."""
    java_options(monkeypatch, **TLS, accessKey="service", secretKey="twelve-chars")
    scenarios(version, guarded["namesrv"], *SCENARIOS)
    failing = [(TLS, "No accessKey is configured"),
               ({**TLS, "accessKey": "service", "secretKey": "wrong"}, "Check signature failed for accessKey=service"),
               ({"tls.enable": "true", "tls.test.mode.enable": "true"}, r"remoting\.exception\.Remoting\w+Exception")]
    for properties, said in failing:
        java_options(monkeypatch, **properties)
        lines, errors = run("--rocketmq", version, guarded["namesrv"], "push")
        (one,) = (json.loads(line) for line in lines if line.startswith("{"))
        assert one["ok"] is False and re.search(said, errors), (one, errors[-4000:])


@pytest.mark.slow           # JVMs with two commands each
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_mqadmin_signs_and_speaks_tls(guarded, version, monkeypatch, tmp_path):
    """By conf/tools.yml: an administrator may make a topic, and a service may not."""
    java_options(monkeypatch, **TLS)
    monkeypatch.setenv("RMQ_INTEROP_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "conf").mkdir(parents=True)
    names = ["-n", guarded["namesrv"]]
    command = ["updateTopic", *names, "-b", guarded["listen"], "-t", "Adm", "-r", "3", "-w", "3", ",", "topicRoute", *names,
               "-t", "Adm"]
    tools = tmp_path / "home" / "conf" / "tools.yml"
    tools.write_text("accessKey: service\nsecretKey: twelve-chars\n")
    assert "Need admin permission for request code=17, but accessKey=service is not" in run("--rocketmq", version, "--admin",
                                                                                            *command)[1]
    tools.write_text("accessKey: operator\nsecretKey: fourteen-chars\n")
    lines, errors = run("--rocketmq", version, "--admin", *command)
    assert '"readQueueNums":3' in "".join(lines).replace(" ", ""), (lines, errors)


@pytest.mark.slow           # two JVMs
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_java_clients_speak_tls_by_default_settings(tmp_path, version, monkeypatch):
    """-Dtls.enable=true alone, where the client checks nothing, beside a client without TLS."""
    with serving(tmp_path, "tls.server.mode=permissive", f"tls.server.certPath={CERTIFICATES / 'server.pem'}",
                 f"tls.server.keyPath={CERTIFICATES / 'server.key'}") as addresses:
        java_options(monkeypatch, **{"tls.enable": "true", "warm": 20})
        scenarios(version, addresses["namesrv"], "push", "retry", "orderly")
        java_options(monkeypatch)
        scenarios(version, addresses["namesrv"], "tags")


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

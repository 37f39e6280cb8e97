"""mqadmin prints of our broker what it prints of a real one: the same directory, served by one and then by the other."""
import json
import re
from pathlib import Path

import pytest

from rmq_store import Broker, NameServer
from tests.broker.peer import Peer
from tests.interop.test_clients import run
from tests.interop.test_frames import free_ports
from tests.interop.test_slave_brokers import java
from tests.soon import until

pytestmark = pytest.mark.slow       # four JVMs
LOOKS = 180_000
OF_ITS_OWN = ("SELF_TEST_TOPIC", "rmq_sys_", "RMQ_SYS_")        # topics that a broker makes for itself
UNIQUE = "7F00000100002A9F00000000000{:05d}"


def commands(version: str, names: str, message_id: str) -> list[list[str]]:
    at = ["-n", names]
    of_topic = [] if version.startswith("4.") else ["-t", "Adm"]
    return [["clusterList", *at], ["topicRoute", *at, "-t", "Adm"], ["topicStatus", *at, "-t", "Adm"],
            ["consumerProgress", *at, "-g", "AdmG"], ["queryMsgById", *at, "-i", message_id, *of_topic],
            ["queryMsgByKey", *at, "-t", "Adm", "-k", "key3"],
            ["queryMsgByUniqueKey", *at, "-t", "Adm", "-i", UNIQUE.format(4)], ["printMsg", *at, "-t", "Adm"],
            ["consumerConnection", *at, "-g", "AdmG"], ["producerConnection", *at, "-g", "P", "-t", "Adm"],
            ["topicList", *at]]


def printed(version: str, names: str, message_id: str) -> dict[str, list[str]]:
    """What each command printed: its lines without what differs from one second, or one process, to the next, in order."""
    wanted = commands(version, names, message_id)
    lines, _ = run("--rocketmq", version, "--admin", *[word for one in wanted for word in (*one, ",")][:-1])
    said: dict[str, list[str]] = {}
    for line in "\n".join(lines).replace("== ", "\n== ").splitlines():
        if line.startswith("== "):
            said[name := line[3:].split()[0]] = []
        elif said and line.strip():
            said[name].append(" ".join(re.sub(r"/tmp/\S+|\d+ms\b", "-", line).split()))
    assert [one[0] for one in wanted] == [*said]
    said["clusterList"] = [" ".join(line.split()[:4]) for line in said["clusterList"]]     # what follows are rates and times
    said["topicList"] = [line for line in said["topicList"] if not line.startswith(OF_ITS_OWN)]
    return {name: sorted(found) for name, found in said.items()}


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_the_same_of_both(tmp_path: Path, version: str) -> None:
    (port,), log = free_ports(1), tmp_path / "log"
    log.touch()
    compat, address = "4.9" if version.startswith("4.") else "5.x", f"127.0.0.1:{port}"
    with NameServer.open() as names:
        with Broker.open(tmp_path / "m", listen=address, namesrv=names.address, namesrv_listen=None, compat=compat,
                         segment_size_bytes=64 << 20, waitTimeMillsInSendQueue=60_000) as ours:
            with Peer(ours.address) as peer:
                assert peer.ask(17, topic="Adm", defaultTopic="TBW102", readQueueNums=3, writeQueueNums=3, perm=6,
                                topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False).code == 0
                assert peer.ask(200, {"groupName": "AdmG"}).code == 0
                for n in range(9):
                    answer = peer.put("Adm", b"body-%d" % n, queue=n % 3,
                                      properties={"KEYS": f"key{n}", "TAGS": "tag", "UNIQ_KEY": UNIQUE.format(n)})
                    assert answer.code == 0
                assert peer.ask(15, consumerGroup="AdmG", topic="Adm", queueId=1, commitOffset=2).code == 0
                message_id = ours.store.message_by_id(answer.ext["msgId"]).msg_id
            until(lambda: registered(names, address), LOOKS)
            of_ours = printed(version, names.address, message_id)
        with java(version, tmp_path / "m", port, log, f"namesrvAddr={names.address}", "brokerName=broker-a"):
            until(lambda: registered(names, address), LOOKS)
            of_real = printed(version, names.address, message_id)
    differ = {name: ({*found} - {*of_real[name]}, {*of_real[name]} - {*found})
              for name, found in of_ours.items() if found != of_real[name]}
    assert differ == {}
    assert len(of_ours["topicStatus"]) >= 4 and len(of_ours["queryMsgById"]) > 10 and len(of_ours["printMsg"]) > 9


def registered(names: NameServer, address: str) -> bool:
    with Peer(names.address) as peer:
        found = peer.ask(105, topic="Adm")
        return found.code == 0 and json.loads(found.body)["brokerDatas"][0]["brokerAddrs"] == {"0": address}

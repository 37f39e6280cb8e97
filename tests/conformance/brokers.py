"""Three brokers in processes of their own and a name server, as RocketMQ's integration tests want them."""
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLUSTER, NAMES = "DefaultCluster", ("TestBrokerName_1", "TestBrokerName_2", "TestBrokerName_3")
# What IntegrationTestBase sets, where it differs from a default.
OPTIONS = {"maxTransferCountOnMessageInMemory": 1024, "maxTransferCountOnMessageInDisk": 1024, "recallMessageEnable": "true",
           "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true", "brokerClusterName": CLUSTER}


def _started(directory: Path, command: list[str], name: str) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    ready = directory / f"{name}.ready"
    with open(directory / f"{name}.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "rmq_store", *command, "--ready-file", str(ready)],
                                   stdout=subprocess.PIPE, stderr=log, env=dict(os.environ))
    assert process.stdout is not None
    if not process.stdout.readline():
        raise AssertionError((directory / f"{name}.log").read_text())
    return process, json.loads(ready.read_text())


@contextmanager
def brokers(directory: Path) -> Iterator[str]:
    """The address of the name server."""
    processes = []
    try:
        process, ready = _started(directory, ["namesrv", "--listen", "127.0.0.1:0"], "namesrv")
        processes.append(process)
        names = ready["namesrv"]
        for name in NAMES:
            options = [word for key, value in {**OPTIONS, "brokerName": name}.items() for word in ("-o", f"{key}={value}")]
            command = ["serve", str(directory / name), "--profile", "test", "--listen", "127.0.0.1:0", "--namesrv", names]
            processes.append(_started(directory, [*command, *options], name)[0])
        yield names
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()

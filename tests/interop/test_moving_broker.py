"""A directory goes from a real broker (5.3.3) to ours and back, under running clients that only see a reconnect.

What waits goes along: offsets of groups, topics and groups, a delayed message, a timer message, half a transaction.
"""
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.jvm import wait_listens
from tests.interop.test_frames import free_ports

TOOLS = Path(__file__).parents[2] / "tools" / "interop"
SECONDS = 180
# Both brokers: the log's file size of Serving.java, and checks of transactions that come soon.
OPTIONS = {"mappedFileSizeCommitLog": 64 << 20, "transactionTimeOut": 3000, "transactionCheckInterval": 3000,
           "brokerName": "broker-a", "flushConsumerOffsetInterval": 500}


class Clients:
    """A JVM with a producer and a consumer. Not thread-safe."""

    def __init__(self, names, log):
        with open(log, "wb") as err:
            self.process = subprocess.Popen([TOOLS / "clients_with_rocketmq.sh", "--rocketmq", "5.3.3", "--moving", names],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True)
        self.lines = queue.Queue()
        self.got = Counter()
        self.others = 0             # deliveries to other groups ("group NAME")
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("")

    def until(self, wanted):
        """Reads until that line."""
        while wanted() if callable(wanted) else True:
            line = self.lines.get(timeout=SECONDS)
            assert line, "the clients ended"
            self.others += " got " in line
            if line.startswith("got "):
                self.got[line[4:]] += 1
            if line == wanted:
                return

    def tell(self, command, answer=None):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self.until(answer or f"sent {command.split()[1]}")

    def await_got(self, *bodies):
        self.until(lambda: any(body not in self.got for body in bodies))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()


@contextmanager
def java_broker(directory, port, names, log):
    # A real broker writes down every 3 s which transactions are settled. Checks in between would settle them again.
    options = [f"{key}={value}" for key, value in {**OPTIONS, "transactionOpBatchInterval": 200}.items()]
    with open(log, "ab") as err:
        process = subprocess.Popen([TOOLS / "broker_with_rocketmq.sh", "--rocketmq", "5.3.3", directory, str(port), *options,
                                    "bindAddress=127.0.0.1", f"namesrvAddr={names}"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=err)
    try:
        wait_listens(process, log)
        yield
        process.communicate(timeout=SECONDS)        # its input ends, and so does it
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def started(command, log):
    with open(log, "ab") as err:
        process = subprocess.Popen([sys.executable, "-m", "rmq_store", *command], stdout=subprocess.PIPE, stderr=err,
                                   env=dict(os.environ))
    assert process.stdout.readline(), log.read_text()
    return process


@contextmanager
def our(command, log):
    process = started(command, log)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


def our_broker(directory, port, names, log):
    options = [word for key, value in OPTIONS.items() for word in ("-o", f"{key}={value}")]
    return our(["serve", str(directory), "--listen", f"127.0.0.1:{port}", "--namesrv", names, *options], log)


@pytest.mark.slow           # three JVMs, and messages that wait for half a minute
def test_a_directory_moves_under_running_clients(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    log.touch()
    port, names_port = free_ports(2)
    names = f"127.0.0.1:{names_port}"
    clients = None
    try:
        with our(["namesrv", "--listen", names], log):
            for turn, broker in enumerate((java_broker, our_broker, java_broker)):
                with broker(store, port, names, log):
                    if clients is None:
                        clients = Clients(names, tmp_path / "clients.log")
                        clients.until("ready")
                    clients.tell("commit", "done commit")
                    clients.tell(f"send first{turn}")
                    clients.await_got(f"first{turn}", *(f"{kind}{turn - 1}" for kind in ("late", "timed", "half") if turn))
                    clients.tell("hold", "done hold")
                    clients.tell("again", "done again")         # the group goes on at its offsets
                    for number in range(20):
                        clients.tell(f"send m{turn}-{number}")
                    clients.await_got(*(f"m{turn}-{number}" for number in range(20)))
                    if turn < 2:
                        clients.tell(f"delay late{turn} 4")     # 30 s
                        clients.tell(f"timer timed{turn} 30000")
                        clients.tell(f"half half{turn}")
                    assert not {f"late{turn}", f"timed{turn}", f"half{turn}"} & clients.got.keys()
        assert set(clients.got.values()) == {1}, clients.got
    finally:
        if clients is not None:
            clients.kill()

"""`rmqstore serve` killed, or told to end, amid sends that come through the network; its store held against what was answered.

    python -m tests.crash.serve_loop [--rounds 20] [--seed 1] [--config mmap-sync-msync ...] [--dir DIR]

Four connections send to a queue each, pipelined. The bodies, and the judge of the directory, are those of kill_loop.py: under
synchronous flush every message that was answered with SUCCESS is there, where the answer said, byte for byte, and nothing is
invented or out of order. SIGTERM must end in order with exit code 0. Some processes are killed while they open a store that
the one before left unrecovered. Exit code 1: something was lost.
"""
import argparse
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from rmq_store.remoting.frame import Frame, decode, encode, frame_size
from tests.crash.kill_loop import CONFIGS, OPTIONS, TOPIC, Directory, body_of

WINDOW, PRODUCERS = 16, 4
PATIENCE_S = 60


class Sender(threading.Thread):
    """One connection that sends without a pause until it ends. acks: (producer, number, log offset) of what was answered."""

    def __init__(self, address: str, producer: int, number: int, acks: list[tuple[int, int, int]]) -> None:
        super().__init__()
        self.address, self.producer, self.number, self.acks = address, producer, number, acks
        self.complaint = ""
        self.start()

    def run(self) -> None:
        try:
            host, port = self.address.rsplit(":", 1)
            with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
                self._send(sock)
        except TimeoutError:
            self.complaint = f"producer {self.producer}: no answer"
        except OSError:         # the process has ended
            pass

    def _send(self, sock: socket.socket) -> None:
        under_way = {}
        come, window = b"", 1       # the first one may make the topic, and overtakes nothing
        while True:
            frames = []
            while len(under_way) < window:
                ext = {"a": "P", "b": TOPIC, "c": "TBW102", "d": str(PRODUCERS), "e": str(self.producer), "f": "0", "g": "1",
                       "h": "0", "i": f"KEYS\1{self.producer}-{self.number}"}
                under_way[self.number & 0xFFFFFF] = self.number
                frames.append(encode(Frame(310, self.number & 0xFFFFFF, ext, body_of(self.producer, self.number))))
                self.number += 1
            sock.sendall(b"".join(frames))
            come += (more := sock.recv(1 << 16))
            if not more:
                return
            while (size := frame_size(come[:8])) and len(come) >= size:
                answer, come = decode(come[:size]), come[size:]
                number = under_way.pop(answer.opaque)
                if answer.code != 0:
                    self.complaint = f"producer {self.producer}: {number} was answered {answer.code} {answer.remark}"
                    return
                self.acks.append((self.producer, number, int(answer.ext["msgId"][16:], 16)))
                window = WINDOW


class Served:
    """A process of `rmqstore serve` over a directory."""

    def __init__(self, root: str, config: str) -> None:
        write_path, flush_mode, backend = config.split("-")[:3]
        options = OPTIONS | {"write_path": write_path, "flush_mode": flush_mode, "flush_backend": backend,
                             "waitTimeMillsInSendQueue": 60_000}       # a busy machine is no fault
        self.ready_file = root + ".ready"
        if os.path.exists(self.ready_file):
            os.unlink(self.ready_file)
        command = [sys.executable, "-m", "rmq_store", "serve", root, "--listen", "127.0.0.1:0", "--namesrv-listen",
                   "127.0.0.1:0", "--ready-file", self.ready_file]
        for name, value in options.items():
            command += ["-o", f"{name}={value}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def address(self) -> str:
        """Where it listens, as soon as it does; "" where it ended before."""
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(self.ready_file):
            if self.process.poll() is not None or time.monotonic() > end:
                return ""
            time.sleep(0.005)
        with open(self.ready_file) as f:
            return str(json.load(f)["listen"])

    def end(self, how: signal.Signals) -> tuple[int, str]:
        """(exit code, what it said)."""
        self.process.send_signal(how)
        said = self.process.communicate(timeout=PATIENCE_S)[1].decode(errors="replace")
        return self.process.returncode, said


def one_round(directory: Directory, how: signal.Signals, wanted: int, rnd: random.Random) -> tuple[list[Any], list[str]]:
    """(acknowledged, what is wrong with the process)."""
    served, acks = Served(directory.root, directory.config), []
    address = served.address()
    senders = [Sender(address, n, directory.counts[n], acks) for n in range(PRODUCERS)] if address else []
    end = time.monotonic() + PATIENCE_S
    while len(acks) < wanted and any(sender.is_alive() for sender in senders) and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(rnd.random() * 0.02)         # spreads the instants; nothing depends on it
    code, said = served.end(how)
    for sender in senders:
        sender.join()
    wrong = [sender.complaint for sender in senders if sender.complaint]
    if not address:
        wrong.append(f"it did not begin to listen: {said}")
    if how == signal.SIGTERM and (code != 0 or os.path.exists(os.path.join(directory.root, "abort"))):
        wrong.append(f"SIGTERM ended it with {code}: {said}")
    return acks, wrong


def run(config: str, rounds: int, seed: int, place: str) -> dict[str, Any]:
    """What the loop saw, and "wrong": a list, empty if all is well."""
    rnd = random.Random(f"{seed} {config}")
    seen: dict[str, Any] = {"config": config, "seed": seed, "kills": 0, "terms": 0, "while_opening": 0, "acknowledged": 0,
                            "wrong": []}
    directory = Directory(os.path.join(place, config), config, [WINDOW] * PRODUCERS)
    for number in range(rounds):
        how = signal.SIGTERM if number % 3 == 2 else signal.SIGKILL
        acks, wrong = one_round(directory, how, int(rnd.expovariate(1 / 600)) + 50, rnd)
        seen["acknowledged"] += len(acks)
        seen["kills" if how == signal.SIGKILL else "terms"] += 1
        if how == signal.SIGKILL and number % 2 == 0:       # and again while it recovers what the first one left
            again = Served(directory.root, config)
            time.sleep(rnd.random() * 0.5)
            seen["while_opening"] += not os.path.exists(again.ready_file)
            again.end(signal.SIGKILL)
        wrong += directory.look(acks, readonly=number % 2 == 1)
        if wrong:
            seen["wrong"] = [f"round {number}: {w}" for w in wrong]
            seen["kept"] = directory.root
            return seen
    shutil.rmtree(directory.root)
    return seen


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.serve_loop", description="kill -9 and SIGTERM of a broker")
    parser.add_argument("--rounds", type=int, default=20, help="processes for each configuration")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--config", nargs="*", default=[c for c in CONFIGS if "-sync-" in c], choices=CONFIGS)
    parser.add_argument("--dir", help="where the stores are made; default: a temporary directory")
    given = parser.parse_args(arguments)
    logging.getLogger("rmq_store").setLevel(logging.CRITICAL)
    place = tempfile.mkdtemp(prefix="rmq_store-serve-", dir=given.dir)
    failed = False
    for config in given.config:
        seen = run(config, given.rounds, given.seed, place)
        print(json.dumps(seen), flush=True)
        failed = failed or bool(seen["wrong"]) or not seen["acknowledged"]
    if not failed:
        shutil.rmtree(place)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

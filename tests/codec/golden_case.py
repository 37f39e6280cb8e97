"""What the codec tests need of a golden case: its inputs, and its commit log as one span of bytes by physical offset.

The cases are bytes of the real RocketMQ (tests/golden/README.md). RMQ_GOLDEN names another directory of them.
"""
import gzip
import json
import os
import tarfile
from functools import lru_cache
from pathlib import Path

ROOT = Path(os.environ.get("RMQ_GOLDEN") or Path(__file__).resolve().parents[1] / "golden")
CASES = sorted(p.parent.name for p in ROOT.glob("*/inputs.jsonl.gz"))
# In a crash image the log ends somewhere, and one has a file of a wrong length: what lies behind the end is not compared.
CLEAN_CASES = [name for name in CASES if "-crash-" not in name or name.endswith("-clean")]


def compat(case):
    return "4.9" if case.startswith("v4") else "5.x"


@lru_cache(maxsize=4)
def inputs(case):
    with gzip.open(ROOT / case / "inputs.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@lru_cache(maxsize=4)
def expected(case):
    with gzip.open(ROOT / case / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@lru_cache(maxsize=4)
def commit_log(case):
    """{physical offset of a file: its bytes}"""
    files = {}
    with tarfile.open(ROOT / case / "store.tar.gz") as tar:
        for member in tar:
            if member.isfile() and "/commitlog/" in member.name:
                files[int(member.name.rpartition("/")[2])] = tar.extractfile(member).read()
    return files


def log_bytes(case, offset, size):
    """Bytes of the log at a physical offset; b"" where the image has no such file."""
    for start, data in commit_log(case).items():
        if start <= offset < start + len(data):
            return data[offset - start:offset - start + size]
    return b""


def host(ip, port):
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def record_fields(entry):
    """Keyword arguments of encode_record for one line of inputs.jsonl; properties as the bytes that were given."""
    return {
        "queue_id": entry["queueId"], "queue_offset": entry["logicsOffset"], "physical_offset": entry["wroteOffset"],
        "sys_flag": entry["sysFlag"], "born_timestamp": entry["bornTs"], "store_timestamp": entry["storeTs"],
        "born_host": host(entry["bornIp"], entry["bornPort"]), "store_host": host(entry["storeIp"], entry["storePort"]),
    }

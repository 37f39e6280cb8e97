"""Writes tests/filter/vectors: what the real RocketMQ says of bloom filters and bit maps. `python -m tests.filter.make_vectors`

bloom.json: k, m and bit positions of the filter module of 5.3.3 (tools/interop/filter/FilterEval.java, `bloom`). bit_maps-VERSION.json:
what a broker of that version has in its queue after `write` of tools/interop/broker/BitMaps.java, and its consumerFilter.json.
"""
import json
import random
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "vectors"
TOOLS = Path(__file__).parents[2] / "tools" / "interop"
EXT = ["enableConsumeQueueExt=true", "mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=20000",
       "mappedFileSizeConsumeQueueExt=4096", "maxHashSlotNum=512", "maxIndexNum=2048"]


def bloom() -> dict[str, object]:
    child = subprocess.Popen([TOOLS / "filter_with_rocketmq.sh", "--rocketmq", "5.3.3"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    assert child.stdin and child.stdout and child.stdout.readline() == "ready\n"

    def ask(error: int, groups: int, text: str) -> list[int]:
        child.stdin.write(f"bloom\t{error}\t{groups}\t{text.encode().hex()}\n")
        child.stdin.flush()
        return [int(number) for number in child.stdout.readline().split()]

    chance = random.Random(20)
    parameters = [[error, groups, *ask(error, groups, "x")[:2]] for error in range(1, 100) for groups in (1, 2, 7, 20, 32, 300, 1000)]
    texts = ["", "CID_abc_efg", "CID_abc_123", "CID_9#topic9", "GroupA#TopicTest", "组#主题", "𝟛#é"] + [
        "".join(chance.choices("aZ%_#é日𝟛", k=length)) for length in range(1, 41)]
    positions = [[error, groups, text, ask(error, groups, text)[2:]] for text in texts
                 for error, groups in ((20, 32), (10, 20), (1, 300), (99, 1))]
    child.kill()
    return {"parameters": parameters, "positions": positions}


def bit_maps(version: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as root:
        store = Path(root) / "store"
        done = subprocess.run([TOOLS / "bit_maps_with_rocketmq.sh", "--rocketmq", version, "write", store, *EXT], check=True,
                              stdout=subprocess.PIPE, text=True)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer | {"consumerFilter.json": (store / "config" / "consumerFilter.json").read_text()}


if __name__ == "__main__":
    for name, made in (("bloom", bloom()), *((f"bit_maps-{v}", bit_maps(v)) for v in ("4.9.8", "5.3.3"))):
        (HERE / f"{name}.json").write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n")

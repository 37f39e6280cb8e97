"""A topic says how many queues it has, and takes memory for those that somebody uses."""
import re
from pathlib import Path

QUEUES = 65_535
TOPICS = 200


def anonymous_mib():
    return int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1]) >> 10


def test_queues_that_nobody_uses_take_no_memory(broker, peer):
    """A pointer for each queue would be 100 MiB."""
    peer.put("First")
    before = anonymous_mib()
    for i in range(TOPICS):
        assert peer.ask(17, topic=f"T{i}", readQueueNums=QUEUES, writeQueueNums=QUEUES, perm=6).code == 0
    assert anonymous_mib() - before < 50


def test_a_queue_of_a_late_page_is_found_again(peer):
    assert peer.ask(17, topic="T", readQueueNums=QUEUES, writeQueueNums=QUEUES, perm=6).code == 0
    offsets = [peer.put("T", b"x", queue=queue).ext["queueOffset"] for queue in (0, 63, 64, 65_534, 64)]
    assert offsets == ["0", "0", "0", "0", "1"]

"""A row for every request code of the broker: what a client sends, and the answer when nothing is wanted for."""
import json
from collections.abc import Callable
from typing import Any

from tests.broker.peer import Peer
from tests.wants.calls import BATCH

QUEUE = {"topic": "T", "queueId": 0}
GROUP = {"consumerGroup": "G", "clientId": "c1"}
SEND = {"producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0,
        "bornTimestamp": 1700000000000, "flag": 0, "properties": "KEYS\x01k\x02", "reconsumeTimes": 0, "unitMode": "false"}
LOCKS = {"clientId": "c1", "consumerGroup": "G", "mqSet": [{"topic": "T", "brokerName": "broker-a", "queueId": 0}]}


def _ask(code: int, body: Any = b"", **ext: Any) -> Callable[[Peer, int], Any]:
    """{n} in a text becomes the number of the call."""
    def call(peer: Peer, n: int) -> Any:
        return peer.ask(code, body, **{name: value.format(n=n) if isinstance(value, str) and "{n}" in value else value
                                       for name, value in ext.items()})
    return call


def _pull(code: int) -> Callable[[Peer, int], Any]:
    return _ask(code, consumerGroup="G", topic="T", queueId=0, queueOffset=0, maxMsgNums=32, sysFlag=4, commitOffset=0,
                suspendTimeoutMillis=10, subVersion=0, subscription="*")


def _transaction(peer: Peer, n: int) -> Any:
    sent = peer.put("X", b"half", properties={"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": f"U{n}"})
    if sent.code:
        return sent
    offset = int.from_bytes(bytes.fromhex(sent.ext["msgId"][16:]), "big")
    return peer.ask(37, commitOrRollback=8, producerGroup="P", tranStateTableOffset=sent.ext["queueOffset"],
                    commitLogOffset=offset, fromTransactionCheck="false", msgId=f"U{n}", transactionId=f"U{n}")


SEND_BACK = _ask(36, group="G", offset=0, delayLevel=1, originMsgId="", originTopic="T", unitMode="false",
                 maxReconsumeTimes=16)
FILTER = {"clientId": "c1", "group": "G", "subscriptionData": {"topic": "T", "subString": "a", "expressionType": "TAG"}}
REPLY = "CORRELATION_ID\x01i\x02REPLY_TO_CLIENT\x01none\x02"
SHORT = {"a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0, "k": "false", "i": REPLY}
# code -> (request, codes that answer it when nothing is wanted for)
REQUESTS: dict[int, tuple[Callable[[Peer, int], Any], tuple[int, ...]]] = {
    10: (_ask(10, b"x", **SEND), (0,)), 310: (lambda peer, n: peer.put("T", b"y"), (0,)),
    320: (lambda peer, n: peer.put("T", BATCH, code=320, m="true"), (0,)),
    11: (_pull(11), (0,)), 361: (_pull(361), (0,)),
    12: (_ask(12, topic="T", key="k", maxNum=32, beginTimestamp=0, endTimestamp=1 << 60), (0,)),
    33: (_ask(33, offset=0), (0,)),
    14: (_ask(14, consumerGroup="G", **QUEUE), (0,)), 15: (_ask(15, consumerGroup="G", commitOffset=1, **QUEUE), (0,)),
    29: (_ask(29, timestamp=0, **QUEUE), (0,)), 30: (_ask(30, **QUEUE), (0,)), 31: (_ask(31, **QUEUE), (0,)),
    32: (_ask(32, **QUEUE), (0,)),
    34: (lambda peer, n: peer.beat("c1", producers=["P"], consumers={"G": {"T": "*"}, f"New{n}": {"T": "*"}}), (0,)),
    35: (_ask(35, clientID="c2", consumerGroup="G2"), (0,)), 38: (_ask(38, consumerGroup="G"), (0,)),
    36: (SEND_BACK, (0,)), 37: (_transaction, (0,)),
    41: (_ask(41, LOCKS), (0,)), 42: (_ask(42, LOCKS), (0,)), 46: (_ask(46, FILTER), (0,)),
    324: (_ask(324, b"r", **SEND | {"properties": REPLY}), (0, 1)), 325: (_ask(325, b"r", **SHORT), (0, 1)),
    17: (_ask(17, topic="Made{n}", readQueueNums=2, writeQueueNums=2, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0,
              order="false", defaultTopic="TBW102"), (0,)),
    215: (_ask(215, topic="Gone"), (0,)),
    200: (lambda peer, n: peer.ask(200, {"groupName": f"Made{n}", "retryMaxTimes": 3}), (0,)),
    207: (_ask(207, groupName="Gone", cleanOffset="true"), (0,)),
    21: (_ask(21), (0,)), 43: (_ask(43), (0,)), 45: (_ask(45), (0,)), 201: (_ask(201), (0,)), 402: (_ask(402), (0,)),
    25: (_ask(25, b"fileReservedTime=72\n"), (0,)), 26: (_ask(26), (0,)), 28: (_ask(28), (0,)),
    315: (_ask(315, statsName="TOPIC_PUT_NUMS", statsKey="T"), (0, 1)),
    202: (_ask(202, topic="T"), (0,)), 208: (_ask(208, consumerGroup="G", topic="T"), (0,)), 300: (_ask(300, topic="T"), (0,)),
    203: (_ask(203, consumerGroup="G"), (0,)), 204: (_ask(204, producerGroup="P"), (0,)),
    222: (_ask(222, topic="T", group="G", timestamp=-1, isForce="true"), (0, 206)),
    351: (_ask(351, topic="T"), (0,)), 352: (_ask(352, group="G"), (0,)),
    307: (_ask(307, consumerGroup="G", clientId="none"), (1, 206)),
    309: (_ask(309, consumerGroup="G", clientId="none", msgId="7F00000100002A9F0000000000000000"), (1, 206)),
    60: (_ask(60), (0, 1)), 61: (_ask(61), (0, 1)),
    370: (_ask(370, producerGroup="P", topic="T", recallHandle="none"), (16, 604)),
}


def as_text(answer: Any) -> str:
    return json.dumps([answer.code, answer.remark or ""])

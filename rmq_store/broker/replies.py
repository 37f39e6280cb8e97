"""Request and reply between clients: codes 324 and 325, push 326 (RocketMQ: ReplyMessageProcessor)."""
import time

from rmq_store.broker.codes import Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.request import Request
from rmq_store.broker.sending import Sending, spelt_out
from rmq_store.remoting.frame import Frame

__all__ = ["Replies"]

PUSH_REPLY_MESSAGE_TO_CLIENT = 326
_SENT = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
         "reconsumeTimes", "unitMode")


class Replies:
    """A reply goes to the producer that asked, over the connection of its heartbeats, and is stored."""

    def __init__(self, core: Core, sending: Sending) -> None:
        self._core, self._sending = core, sending

    def processors(self) -> dict[int, Processor]:
        return {324: self._reply, 325: lambda request: self._reply(spelt_out(request))}

    def _reply(self, request: Request) -> Frame | None:
        sent = self._sending.checked(request)
        properties = dict(sent.properties)
        name = properties.get("REPLY_TO_CLIENT", "")
        client = self._core.clients.client_of(name) if name else None
        if client is None:
            return request.answer(Code.SYSTEM_ERROR, f"push reply message fail, channel of <{name:.255}> not found.")
        properties["PUSH_REPLY_TIME"] = str(int(time.time() * 1000))
        ext = {key: request.ext[key] for key in _SENT if key in request.ext} | {
            "bornHost": request.connection.peer, "storeHost": self._core.address, "queueId": str(sent.queue_id),
            "storeTimestamp": str(int(time.time() * 1000)),
            "properties": "".join(f"{key}\x01{value}\x02" for key, value in properties.items())}
        if not self._core.push(client.connection, PUSH_REPLY_MESSAGE_TO_CLIENT, ext, request.frame.body, oneway=False):
            return request.answer(Code.SYSTEM_ERROR, f"push reply message to client<{name:.255}> fail.")
        return self._sending.put(sent._replace(properties=properties))

"""Requests that the broker passes on to one consumer, whose answer it hands back: codes 307 and 309 (RocketMQ:
AdminBrokerProcessor.callConsumer, Broker2Client.callClient)."""
import threading

from rmq_store.broker.clients import Client
from rmq_store.broker.codes import SUB, Code
from rmq_store.broker.core import BUSY, Core, Processor
from rmq_store.broker.request import Refused, Request
from rmq_store.broker.resources import record_topic, require
from rmq_store.codec.message_id import decode_message_id
from rmq_store.remoting.frame import Frame

__all__ = ["Calls"]

RUNNING_INFO, CONSUME_DIRECTLY = 307, 309
TIMEOUT_S = 10.0
CALLS_MAX = 6           # at a time: each holds a worker, and one connection has no more than four of these
VERSION_MIN = 62        # of a client that knows these requests: V3_1_8_SNAPSHOT


class _Call:
    __slots__ = ("answer", "connection_id", "done")

    def __init__(self, connection_id: int) -> None:
        self.connection_id = connection_id
        self.answer: Frame | None = None
        self.done = threading.Event()


class Calls:
    """answered, gone and stop may be called in any thread; the processors wait, so that they belong into workers."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._waiting: dict[tuple[int, int], _Call] = {}        # connection and opaque
        self._stopped = False

    def processors(self) -> dict[int, Processor]:
        return {RUNNING_INFO: lambda request: self._call(request, dict(request.ext), request.frame.body),
                CONSUME_DIRECTLY: self._consume}

    def answered(self, connection_id: int, answer: Frame) -> None:
        """A client has answered. What nobody waits for is dropped."""
        with self._lock:
            call = self._waiting.pop((connection_id, answer.opaque), None)
        if call is not None:
            call.answer = answer
            call.done.set()

    def gone(self, connection_id: int) -> None:
        """A connection has ended: its client does not answer any more."""
        with self._lock:
            ended = [key for key in self._waiting if key[0] == connection_id]
            calls = [self._waiting.pop(key) for key in ended]
        for call in calls:
            call.done.set()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            calls, self._waiting = list(self._waiting.values()), {}
        for call in calls:
            call.done.set()

    def _consume(self, request: Request) -> Frame:
        """The client gets the record of the message that the id names."""
        core = self._core
        try:
            offset = decode_message_id(request.text("msgId"))[1]
        except ValueError as error:
            raise Refused(Code.SYSTEM_ERROR, str(error)) from None
        message = core.store.message_at(offset) if offset >= 0 else None
        if message is None:
            raise Refused(Code.SYSTEM_ERROR, f"no message is at the offset of the id, {offset}")
        require(request, record_topic(message.topic, message.properties), SUB)
        ext = {**request.ext, "brokerName": core.options["brokerName"]}
        return self._call(request, ext, message.raw)

    def _call(self, request: Request, ext: dict[str, str], body: bytes) -> Frame:
        group, client_id = request.text("consumerGroup"), request.text("clientId")
        client = next((one for one in self._core.clients.consumers(group) if one.id == client_id), None)
        if client is None:
            raise Refused(Code.SYSTEM_ERROR, f"The Consumer <{group:.255}> <{client_id:.255}> not online")
        if client.version < VERSION_MIN:
            raise Refused(Code.SYSTEM_ERROR, f"The Consumer <{client_id:.255}> Version <{client.version}> too low to finish, "
                          "please upgrade it to V3_1_8_SNAPSHOT")
        answer = self._ask(client, request.frame.code, ext, body)
        if answer is None:
            raise Refused(Code.CONSUME_MSG_TIMEOUT, f"consumer <{group:.255}> <{client_id:.255}> Timeout: no answer within "
                          f"{TIMEOUT_S:.0f} s, or its connection ended")
        return request.answer(answer.code, answer.remark, answer.ext, answer.body)

    def _ask(self, client: Client, code: int, ext: dict[str, str], body: bytes) -> Frame | None:
        """The client's answer; None where none comes."""
        connection, opaque = client.connection, self._core.next_opaque()
        call = _Call(connection.id)
        with self._lock:
            if len(self._waiting) >= CALLS_MAX or self._stopped:
                raise Refused(Code.SYSTEM_BUSY, BUSY)
            self._waiting[connection.id, opaque] = call
        try:
            if self._core.push(connection, code, ext, body, oneway=False, opaque=opaque):
                call.done.wait(TIMEOUT_S)
        finally:
            with self._lock:
                self._waiting.pop((connection.id, opaque), None)
        return call.answer

"""Producing: codes 10, 310 and 320 (RocketMQ: SendMessageProcessor, AbstractSendMessageProcessor.msgCheck).

A put is asynchronous: its answer goes out when its status is known, so that one synchronous flush serves many clients. The
stored order of properties is that of a broker's HashMap.
"""
import logging
import threading
from collections.abc import Callable
from typing import Any

from rmq_store.access.writer._put_many import PutManyResult
from rmq_store.broker.codes import DEAD, FAQ, NO_SEND, PERM_READ, PERM_WRITE, PUT_ANSWERS, RETRY, Code
from rmq_store.broker.core import BUSY, Core, Processor
from rmq_store.broker.request import Refused, Request
from rmq_store.broker.topics import Topic, any_queue, topic_problem
from rmq_store.codec.properties import decode_properties
from rmq_store.codec.timer import TIMER_NAMES
from rmq_store.errors import DurabilityError, PutError, RmqStoreError, StoreStateError, WheelTimerMsgIllegal
from rmq_store.fields import NamedTuple
from rmq_store.remoting.frame import Frame
from rmq_store.services.transaction.half import encoded_as_a_broker
from rmq_store.status import PutStatus

__all__ = ["SEND", "Sending", "Sent", "put_answer", "put_failed", "refuse_on_slave", "tell_dead"]

SEND, SEND_V2, SEND_BATCH = 10, 310, 320
UNIT_FLAG, UNIT_SUB_FLAG = 1, 2         # of a topic's topicSysFlag
_LETTERS = {"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
            "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
            "l": "maxReconsumeTimes", "m": "batch", "n": "brokerName"}
_TRANSACTION_BITS = 0xC


class Sent(NamedTuple):
    """A send as it came, checked: where it goes and what it carries."""

    request: Request
    topic: Topic
    queue_id: int
    properties: dict[str, str]
    put: dict[str, Any]         # keywords for put, but topic, queue id, body and properties


def spelt_out(request: Request) -> Request:
    """A request whose header has one-letter names, with the long ones. A long name in it is no field: nobody checked it."""
    request.ext = {_LETTERS[name]: value for name, value in request.ext.items() if name in _LETTERS}
    return request


def put_answer(status: PutStatus) -> tuple[int, str]:
    return PUT_ANSWERS.get(status, (Code.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"))


def put_failed(error: BaseException) -> tuple[int, str]:
    """(answer code, remark) for what a put raised. Raises it again if it is no refusal of a store."""
    if isinstance(error, PutError | DurabilityError | StoreStateError) and error.status is not None:
        code, remark = put_answer(error.status)
        return code, f"{remark} {error}"
    if isinstance(error, ValueError):           # a number or a text that no record can hold
        return Code.MESSAGE_ILLEGAL, str(error)
    raise error


def tell_dead(core: Core, group: str, id: str, topic: str, times: int) -> None:
    core.gathered.say(logging.WARNING, "dead letter", "message %s of %s goes to %s: group %s retried it %d times", id, topic,
                      DEAD + group, group, times)


def refuse_on_slave(core: Core) -> None:
    """Before a send changes anything. Raises Refused."""
    if core.is_slave:
        raise Refused(Code.SERVICE_NOT_AVAILABLE, f"{put_answer(PutStatus.SERVICE_NOT_AVAILABLE)[1]} The "
                      f"broker[{core.address}] is a slave: send to the master")


class Sending:
    """prepare(sent, ext) stores a half message and returns the answer; ext: the fields that all answers to sends have."""

    def __init__(self, core: Core, prepare: Callable[[Sent, dict[str, str]], Frame]) -> None:
        self._core, self._prepare = core, prepare
        self._flushing = 0                      # sends whose answer comes with the end of a flush
        self._answered = threading.Condition()

    def processors(self) -> dict[int, Processor]:
        return {SEND: self._send, SEND_V2: lambda request: self._send(spelt_out(request))}

    def batch_processors(self) -> dict[int, Processor]:
        """A batch that waits for the device holds its thread."""
        return {SEND_BATCH: lambda request: self._send(spelt_out(request))}

    def _send(self, request: Request) -> Frame | None:
        try:
            refuse_on_slave(self._core)
            return self._send_checked(request, self.checked(request))
        except Refused as refused:
            return request.answer(refused.code, refused.remark, self._region())

    def _send_checked(self, request: Request, sent: Sent) -> Frame | None:
        if request.flag("batch") or request.frame.code == SEND_BATCH:
            return self._batch(sent)
        body = request.frame.body
        if self._core.modern and not body:
            raise Refused(Code.MESSAGE_ILLEGAL, put_answer(PutStatus.MESSAGE_ILLEGAL)[1])
        if sent.topic.name.startswith(RETRY):
            sent = self._dead_or_retry(sent)
        if sent.properties.get("TRAN_MSG") == "true":
            if self._core.options["rejectTransactionMessage"]:
                raise Refused(Code.NO_PERMISSION, f"the broker[{self._core.address}] sending transaction message is forbidden")
            return self._later(sent)
        return self.put(sent)

    def put(self, sent: Sent) -> Frame | None:
        """Stores one message. The answer, or None where it comes with the end of a flush."""
        request, body = sent.request, sent.request.frame.body
        store = self._core.store
        try:
            future = store.put_async(sent.topic.name, body, queue_id=sent.queue_id, wait=self._wait(sent), **sent.put,
                                     properties=encoded_as_a_broker(self._stamped(sent.properties), store.options.compat))
        except (RmqStoreError, ValueError) as error:
            return request.answer(*put_failed(error), self._region())
        if future.done():
            return self._answer(sent, future)
        request.frame.body = b""            # the log has it: what waits for a flush holds little
        with self._answered:
            self._flushing += 1
        future.add_done_callback(lambda done: self._reply(sent, done))
        return None

    def _reply(self, sent: Sent, future: Any) -> None:
        try:
            self._core.reply(sent.request, self._answer(sent, future))
        finally:
            with self._answered:
                self._flushing -= 1
                self._answered.notify_all()

    def drain(self, seconds: float) -> None:
        """Waits until all sends that wait for a flush are answered, or the time is over."""
        with self._answered:
            self._answered.wait_for(lambda: self._flushing == 0, seconds)

    def _later(self, sent: Sent) -> Frame | None:
        """A half message: its put may wait for the device."""
        request = sent.request

        def run(_: Request) -> Frame:
            return self._prepare(sent, self.ext(sent, "", 0))

        if not self._core.processors.later(run, request):
            raise Refused(Code.SYSTEM_BUSY, BUSY)
        return None

    def _answer(self, sent: Sent, future: Any) -> Frame:
        try:
            result = future.result(0)
        except Exception as error:
            return sent.request.answer(*put_failed(error), self._region())
        code, remark = put_answer(result.status)
        ext = self.ext(sent, result.msg_id, result.queue_offset)
        if handle := self._recall_handle(sent, result):
            ext["recallHandle"] = handle
        return sent.request.answer(code, remark, ext)

    def _recall_handle(self, sent: Sent, result: Any) -> str:
        """By which a producer takes a timer message back; "" for another message, or one whose time is past."""
        if not self._core.modern or sent.topic.name.startswith(RETRY) or sent.properties.keys().isdisjoint(TIMER_NAMES):
            return ""
        try:
            return self._core.store.recall_handle(result.offset, self._core.options["brokerName"])
        except WheelTimerMsgIllegal:
            return ""

    def ext(self, sent: Sent, msg_id: str, queue_offset: int) -> dict[str, str]:
        """The fields of an answer to a send that is stored."""
        ext = {"msgId": msg_id, "queueId": str(sent.queue_id), "queueOffset": str(queue_offset)} | self._region()
        if self._core.modern and "UNIQ_KEY" in sent.properties:
            ext["transactionId"] = sent.properties["UNIQ_KEY"]
        return ext

    def _region(self) -> dict[str, str]:
        """What every answer to a send has, and a message of 5.x."""
        options = self._core.options
        return {"MSG_REGION": options["regionId"], "TRACE_ON": "true" if options["traceOn"] else "false"}

    def _stamped(self, properties: dict[str, str], batch: bool = False) -> dict[str, str]:
        """With what a broker adds, and without what it takes away."""
        stamped = {**properties, "CLUSTER": self._core.options["brokerClusterName"]}
        if self._core.modern:
            stamped |= self._region()
        elif not batch:
            stamped.pop("WAIT", None)
        return stamped

    def _wait(self, sent: Sent) -> bool | None:
        """A producer may say that it does not wait for the device, with setWaitStoreMsgOK(false)."""
        return False if sent.properties.get("WAIT") == "false" else None

    # ---- checks

    def checked(self, request: Request) -> Sent:
        """As msgCheck, and what a record says of its sender. The topic is made where a producer may make one."""
        core, name = self._core, request.text("topic")
        illegal = Code.INVALID_PARAMETER if core.modern else Code.SYSTEM_ERROR
        if not core.options["brokerPermission"] & PERM_WRITE:
            raise Refused(Code.NO_PERMISSION, f"the broker[{core.address}] sending message is forbidden")
        if problem := topic_problem(name):
            raise Refused(illegal, problem)
        if name in NO_SEND:
            raise Refused(Code.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        unit = request.flag("unitMode")
        topic = core.topics.find(name) or core.topics.create_for_send(
            name, request.ext.get("defaultTopic", ""), request.integer("defaultTopicQueueNums", 4), UNIT_FLAG if unit else 0)
        if topic is None and name.startswith(RETRY):
            topic = core.topics.create(name, 1, sys_flag=UNIT_SUB_FLAG if unit else 0)
        if topic is None:
            raise Refused(Code.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
        if not topic.perm & PERM_WRITE:
            raise Refused(Code.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        queue_id = request.integer("queueId")
        if queue_id >= topic.queues:
            raise Refused(illegal, f"request queueId[{queue_id}] is illegal, topic[{name}] has {topic.queues} queues, "
                          f"Producer: {request.connection.peer}")
        if queue_id < 0:
            queue_id = any_queue(topic.write)
        properties = decode_properties(request.ext.get("properties", "").encode())
        put = {"flag": request.integer("flag"), "sys_flag": request.integer("sysFlag") & ~_TRANSACTION_BITS,
               "born_timestamp": request.long("bornTimestamp"), "born_host": request.connection.peer,
               "reconsume_times": request.integer("reconsumeTimes", 0)}
        return Sent(request, topic, queue_id, properties, put)

    def _dead_or_retry(self, sent: Sent) -> Sent:
        """A client sends a message of its group again by itself: to the dead letters where it has had its tries."""
        core, request = self._core, sent.request
        group = core.groups.find(sent.topic.name.removeprefix(RETRY))
        if group is None:
            raise Refused(Code.GROUP_NOT_EXIST, f"subscription group not exist, {sent.topic.name}{FAQ}")
        most = request.integer("maxReconsumeTimes", group.retry_max)
        if sent.put["reconsume_times"] < most:
            return sent
        topic = core.topics.create(DEAD + group.name, 1, PERM_READ | PERM_WRITE)
        if topic is None:
            raise Refused(Code.SYSTEM_ERROR, f"topic[{DEAD}{group.name}] not exist")
        properties = {name: value for name, value in sent.properties.items() if name != "DELAY"}
        tell_dead(core, group.name, properties.get("ORIGIN_MESSAGE_ID", ""), properties.get("RETRY_TOPIC", sent.topic.name),
                  sent.put["reconsume_times"])
        return sent._replace(topic=topic, queue_id=0, properties=properties)

    # ---- batches

    def _batch(self, sent: Sent) -> Frame:
        request, store = sent.request, self._core.store
        if sent.topic.name.startswith((RETRY, DEAD)):
            raise Refused(Code.MESSAGE_ILLEGAL, "batch request does not support retry group")
        properties = encoded_as_a_broker(self._stamped(sent.properties, batch=True), store.options.compat)
        fields = {name: value for name, value in sent.put.items() if name != "flag"}    # each message has its own
        try:
            result: PutManyResult = store.put_batch(sent.topic.name, request.frame.body, queue_id=sent.queue_id,
                                                    properties=properties, wait=self._wait(sent), **fields)
        except (RmqStoreError, ValueError) as error:
            return request.answer(*put_failed(error), self._region())
        code, remark = put_answer(result.status)
        ids, offsets = result.msg_ids, result.queue_offsets
        return request.answer(code, remark, self.ext(sent, ",".join(ids), offsets[0] if offsets else 0))

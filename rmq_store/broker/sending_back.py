"""Messages that a consumer could not handle: code 36, into %RETRY%group or %DLQ%group (RocketMQ: SendMessageProcessor's
consumerSendMsgBack)."""
import threading
from typing import TYPE_CHECKING

from rmq_store.broker.codes import FAQ, PERM_WRITE, SUB, Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.request import Refused, Request
from rmq_store.broker.resources import record_topic, require
from rmq_store.broker.sending import put_answer, put_failed, refuse_on_slave, tell_dead
from rmq_store.broker.topics import any_queue
from rmq_store.errors import RmqStoreError
from rmq_store.remoting.frame import Frame
from rmq_store.services.consumer.handling import TOO_LARGE, SentBack, forms_of, tell_too_large
from rmq_store.services.transaction.half import encoded_as_a_broker
from rmq_store.status import PutStatus

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message

__all__ = ["SendingBack"]


class SendingBack:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._counting = threading.Lock()

    def processors(self) -> dict[int, Processor]:
        return {36: self._send_back}

    def _send_back(self, request: Request) -> Frame:
        core, store = self._core, self._core.store
        refuse_on_slave(core)
        name, offset = request.text("group"), request.long("offset")
        group = core.groups.find(name)
        if group is None:
            raise Refused(Code.GROUP_NOT_EXIST, f"subscription group not exist, {name:.255}{FAQ}")
        if not core.options["brokerPermission"] & PERM_WRITE:
            raise Refused(Code.NO_PERMISSION, f"the broker[{core.address}] sending message is forbidden")
        if group.retry_queues == 0:
            return request.answer()
        message = store.message_at(offset) if offset >= 0 else None
        if message is None:
            raise Refused(Code.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        require(request, record_topic(message.topic, message.properties), SUB)
        times, level = message.reconsume_times, request.integer("delayLevel")
        dead = level < 0 or times >= request.integer("maxReconsumeTimes", group.retry_max)
        code, remark = put_answer(PutStatus.MESSAGE_ILLEGAL)
        for back in forms_of(message, name, store.options, dead=dead, level=level or 3 + max(times, 0),
                             origin_id=request.ext.get("originMsgId")):
            try:
                self._put(request, message, back, group.retry_queues)
                break
            except TOO_LARGE as error:
                code, remark = put_failed(error)
            except (RmqStoreError, ValueError) as error:
                return request.answer(*put_failed(error))
        else:
            return request.answer(code, remark)
        tell_too_large(back, name)
        if back.dead:
            tell_dead(core, name, back.origin_id, back.origin, back.times)
        counts = store._consuming.counts_of(name, back.origin)
        with self._counting:
            counts.sent_back += 1
            counts.dead_letters += back.dead
        return request.answer(*put_answer(PutStatus.PUT_OK))

    def _put(self, request: Request, message: "Message", back: SentBack, queues: int) -> None:
        """Raises Refused where its topic is not there, or may not be written, and what a put raises."""
        core, store, count = self._core, self._core.store, 1 if back.dead else queues
        topic = core.topics.create(back.topic, count, sys_flag=2 if request.flag("unitMode") else 0)
        if topic is None:
            raise Refused(Code.SYSTEM_ERROR, f"topic[{back.topic}] not exist")
        if not topic.perm & PERM_WRITE:
            raise Refused(Code.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden")
        properties = back.properties
        if not isinstance(properties, bytes):
            properties = encoded_as_a_broker({**properties, "WAIT": "false"}, store.options.compat)
        store._put_copy(topic.name, queue_id=any_queue(count), properties=properties, **back.put).result()

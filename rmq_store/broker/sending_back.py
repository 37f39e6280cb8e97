"""Messages that a consumer could not handle: code 36, into %RETRY%group or %DLQ%group (RocketMQ: SendMessageProcessor's
consumerSendMsgBack)."""
import threading

from rmq_store.broker.codes import DEAD, FAQ, PERM_WRITE, RETRY, SUB, Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.request import Refused, Request
from rmq_store.broker.resources import record_topic, require
from rmq_store.broker.sending import put_answer, put_failed, refuse_on_slave
from rmq_store.broker.topics import any_queue
from rmq_store.errors import RmqStoreError
from rmq_store.remoting.frame import Frame
from rmq_store.services.consumer.consumer import LIGHT_PROPERTIES
from rmq_store.services.transaction.half import encoded_as_a_broker
from rmq_store.status import PutStatus

__all__ = ["SendingBack"]

# What belongs to one delivery, and must not come along to the next.
_OF_ONE_DELIVERY = ("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__CRC32#")


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
        most = request.integer("maxReconsumeTimes", group.retry_max)
        properties = {key: value for key, value in message.properties.items() if key not in _OF_ONE_DELIVERY}
        properties.setdefault("RETRY_TOPIC", message.topic)
        properties.setdefault("ORIGIN_MESSAGE_ID", request.ext.get("originMsgId") or message.msg_id)
        properties["RECONSUME_TIME"] = str(times + 1)
        properties["WAIT"] = "false"
        dead = level < 0 or times >= most
        if dead:
            for light in LIGHT_PROPERTIES:
                properties.pop(light, None)
            properties.setdefault("DLQ_ORIGIN_TOPIC", properties["RETRY_TOPIC"])
            properties.setdefault("DLQ_ORIGIN_MESSAGE_ID", properties["ORIGIN_MESSAGE_ID"])
        else:
            properties["DELAY"] = str(level or 3 + times)
        count = 1 if dead else group.retry_queues
        topic = core.topics.create((DEAD if dead else RETRY) + name, count, sys_flag=2 if request.flag("unitMode") else 0)
        if topic is None:
            raise Refused(Code.SYSTEM_ERROR, f"topic[{DEAD if dead else RETRY}{name}] not exist")
        if not topic.perm & PERM_WRITE:
            raise Refused(Code.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden")
        try:
            store.put(topic.name, message.body, queue_id=any_queue(count), flag=message.flag, sys_flag=message.sys_flag,
                      properties=encoded_as_a_broker(properties, store.options.compat), born_host=message.born_host,
                      born_timestamp=message.born_timestamp, reconsume_times=times + 1, wait=None)
        except (RmqStoreError, ValueError) as error:
            return request.answer(*put_failed(error))
        counts = store._consuming.counts_of(name, properties["RETRY_TOPIC"])
        with self._counting:
            counts.sent_back += 1
            counts.dead_letters += dead
        return request.answer(*put_answer(PutStatus.PUT_OK))

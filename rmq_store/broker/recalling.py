"""Timer messages that are taken back, and what a slave of 5.x copies of the timer: codes 370, 60 and 61 (RocketMQ:
RecallMessageProcessor, AdminBrokerProcessor.getTimerCheckPoint and getTimerMetrics)."""
import time
from typing import Any

from rmq_store.broker.codes import PERM_WRITE, Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.request import Refused, Request, body_of
from rmq_store.broker.sending import put_answer, put_failed, refuse_on_slave
from rmq_store.codec.timer import RECALL_BODY, RECALL_TAG, recall_message, recall_of
from rmq_store.errors import MessageIllegal, RmqStoreError
from rmq_store.remoting.frame import Frame
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.timer.service import CHECK, load_check
from rmq_store.services.transaction.half import encoded_as_a_broker

__all__ = ["Recalling"]

NO_METRICS: dict[str, Any] = {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, "timingCount": {}}


class Recalling:
    def __init__(self, core: Core) -> None:
        self._core = core

    def processors(self) -> dict[int, Processor]:
        """None in 4.9, which has no timer."""
        if not self._core.modern:
            return {}
        return {370: self._recall, 60: self._check_point, 61: self._metrics}

    def _recall(self, request: Request) -> Frame:
        try:
            refuse_on_slave(self._core)
            return self._checked(request)
        except Refused as refused:
            return request.answer(refused.code, refused.remark, {"MSG_REGION": self._core.options["regionId"]})

    def _checked(self, request: Request) -> Frame:
        core, name = self._core, request.text("topic")
        if not core.options["recallMessageEnable"]:
            raise Refused(Code.NO_PERMISSION, "recall failed, operation is forbidden")
        if not core.options["brokerPermission"] & PERM_WRITE and not core.options["allowRecallWhenBrokerNotWriteable"]:
            raise Refused(Code.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
        if core.topics.find(name) is None:
            raise Refused(Code.TOPIC_NOT_EXIST, f"recall failed, the topic[{name:.255}] not exist")
        try:
            handle = recall_of(request.text("recallHandle"))
        except MessageIllegal as error:
            raise Refused(Code.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != name:
            raise Refused(Code.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != core.options["brokerName"]:
            raise Refused(Code.ILLEGAL_OPERATION, "recall failed, broker service not available")
        left = handle.deliver_ms - int(time.time() * 1000)
        if not 0 < left < core.store.options.timer_max_delay_sec * 1000:
            raise Refused(Code.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return self._put(request, handle.unique_key)

    def _put(self, request: Request, unique_key: str) -> Frame:
        store = self._core.store
        topic, properties = recall_message(request.text("recallHandle"))
        now = int(time.time() * 1000)
        properties |= {"TAGS": RECALL_TAG, "BORN_TIMESTAMP": str(now)}
        if group := request.ext.get("producerGroup"):
            properties["PGROUP"] = group
        try:
            result = store._put_copy(topic, RECALL_BODY, queue_id=0, born_timestamp=now, born_host=request.connection.peer,
                                     properties=encoded_as_a_broker(properties, store.options.compat)).result()
            store._recalled_in_time(request.text("recallHandle"))
        except (RmqStoreError, ValueError) as error:
            return request.answer(*put_failed(error))
        code, remark = put_answer(result.status)
        if code not in (Code.SUCCESS, Code.FLUSH_DISK_TIMEOUT, Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE):
            raise Refused(Code.SYSTEM_ERROR, "recall failed, execute error")
        return request.answer(Code.SUCCESS, remark, {"msgId": unique_key, "MSG_REGION": self._core.options["regionId"]})

    def _check_point(self, request: Request) -> Frame:
        """Seven numbers of 8 bytes, as config/timercheck has them on the device."""
        return request.answer(body=CHECK.pack(*load_check(self._core.store.path)))

    def _metrics(self, request: Request) -> Frame:
        store = self._core.store
        if not store.options.timer_wheel_enable:
            raise Refused(Code.SYSTEM_ERROR, "The timer message store is null")
        file = ConfigFile(store._files, store.path, "timermetrics")
        found = file.load(lambda content: content if isinstance(content, dict) else None)
        return request.answer(body=body_of(found or NO_METRICS))

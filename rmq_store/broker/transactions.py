"""Transactions of producers: half messages, code 37, and the check, push 39 (RocketMQ: TransactionalMessageBridge,
EndTransactionProcessor, Broker2Client.checkProducerTransactionState). The store's own transactions do the work."""
import logging
import threading

from rmq_store.broker.codes import PUB, Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.request import Refused, Request
from rmq_store.broker.resources import require
from rmq_store.broker.sending import Sent, put_answer, put_failed
from rmq_store.codec._codec import encode_record
from rmq_store.codec.message_id import create_message_id
from rmq_store.errors import RmqStoreError, TransactionDecided, TransactionUnknown
from rmq_store.remoting.frame import Frame
from rmq_store.services.transaction.table import COMMITTED, ROLLED_BACK
from rmq_store.services.transaction.transaction import Transaction
from rmq_store.status import PutStatus

__all__ = ["Transactions"]

CHECK_TRANSACTION_STATE = 39
COMMIT, ROLLBACK = 8, 12
GROUPS_MAX = 10_000


class Transactions:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._checked: set[str] = set()         # groups whose transactions the store checks
        self._turn = 0

    def begin(self) -> None:
        """Groups that have transactions from before are asked, too."""
        for group in {one.group for one in self._core.store.transactions()}:
            self._check_group(group)

    def processors(self) -> dict[int, Processor]:
        return {37: self._end}

    def prepare(self, sent: Sent, ext: "dict[str, str]") -> Frame:
        """Stores a half message. ext: the fields of its answer that all sends have."""
        request = sent.request
        group = sent.properties.get("PGROUP") or request.text("producerGroup")
        wait = False if sent.properties.get("WAIT") == "false" else None
        try:
            transaction = self._core.store.prepare(sent.topic.name, request.frame.body, group=group, queue_id=sent.queue_id,
                                                   properties=sent.properties, wait=wait, **sent.put)
        except (RmqStoreError, ValueError) as error:
            return request.answer(*put_failed(error))
        self._check_group(group)
        code, remark = put_answer(PutStatus.PUT_OK)
        place = {"msgId": create_message_id(self._core.store.options.store_host, transaction.offset), "queueId": "0",
                 "queueOffset": str(transaction.half_offset)}
        return request.answer(code, remark, ext | place)

    def _end(self, request: Request) -> Frame | None:
        if self._core.is_slave:
            raise Refused(Code.SLAVE_NOT_AVAILABLE, "this broker is a slave: transactions end at the master")
        decision = request.integer("commitOrRollback")
        if decision not in (COMMIT, ROLLBACK):      # the producer does not know: it is asked
            return None
        store = self._core.store
        try:
            half = store._transactions.at(store, request.long("commitLogOffset"), request.long("tranStateTableOffset"),
                                          request.text("producerGroup"))
            require(request, half.topic, PUB)
            store._transactions.end(store, half, COMMITTED if decision == COMMIT else ROLLED_BACK, None)
        except (TransactionUnknown, TransactionDecided) as error:
            raise Refused(Code.SYSTEM_ERROR, str(error)) from None
        except RmqStoreError as error:
            return request.answer(*put_failed(error))
        return request.answer()

    # ---- the check

    def _check_group(self, group: str) -> None:
        with self._lock:
            if group in self._checked or len(self._checked) >= GROUPS_MAX:
                return
            self._checked.add(group)
        self._core.store.on_check(group, self._ask)

    def _ask(self, transaction: Transaction) -> None:
        """Asks one producer of the group. Its answer is a request 37, so the store learns nothing here."""
        producers = self._core.clients.producers(transaction.group)
        if (access := self._core.access) is not None:       # a heartbeat names any group, and this sends the message's body
            producers = [one for one in producers if access.may(one.access_key, transaction.topic, PUB)]
        if not producers:
            self._core.gathered.say(
                logging.WARNING, "no producer", "transaction %s of group %s cannot be checked: no producer of the group is "
                "connected that may send to its topic", transaction.id, transaction.group)
            return
        self._turn += 1
        half = transaction.message
        properties = half.properties
        topic, queue_id = transaction.topic, transaction.queue_id
        body = encode_record(
            topic, half.body, queue_id=queue_id, queue_offset=half.queue_offset, physical_offset=half.offset, flag=half.flag,
            sys_flag=half.sys_flag, born_timestamp=half.born_timestamp, born_host=half.born_host,
            store_timestamp=half.store_timestamp, store_host=half.store_host, reconsume_times=half.reconsume_times,
            prepared_transaction_offset=half.prepared_transaction_offset, properties=half.properties_raw,
            compat=self._core.store.options.compat)
        unique = properties.get("UNIQ_KEY", "")
        ext = {"commitLogOffset": str(half.offset), "tranStateTableOffset": str(half.queue_offset), "msgId": unique,
               "transactionId": unique, "offsetMsgId": half.msg_id}
        if self._core.modern:
            ext |= {"topic": topic, "bname": self._core.options["brokerName"]}
        client = producers[self._turn % len(producers)]
        self._core.push(client.connection, CHECK_TRANSACTION_STATE, ext, bytes(body))

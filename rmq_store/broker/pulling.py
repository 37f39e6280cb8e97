"""Reading by pull: codes 11 and 361, answered at once or held until a message comes (RocketMQ: PullMessageProcessor)."""
import logging
import threading
import time

from rmq_store.access.reader._get import GetResult
from rmq_store.base.machine.limits import memory_limit
from rmq_store.broker.clients import Subscription, subscription_of
from rmq_store.broker.codes import FAQ, PERM_READ, Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.holding import Held
from rmq_store.broker.request import Refused, Request, body_of
from rmq_store.broker.topics import is_light
from rmq_store.errors import FilterIllegal, RmqStoreError
from rmq_store.fields import NamedTuple
from rmq_store.remoting.frame import FRAME_MAX, Frame
from rmq_store.status import GetStatus

__all__ = ["Pulling"]

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4      # bits of sysFlag
BYTES_MAX = FRAME_MAX - (1 << 20)
SUSPEND_MAX_MS = 3_600_000
TAGS_MAX = 32 << 10
COUNT_MAX = 1 << 16
AWAITED_MAX = 100_000           # light queues without a message
AWAITED_LOOK_S = 1.0            # between two looks at which of them got one
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
INNER_BATCH = 0x80          # bit of a record's sysFlag

_CODES = {
    GetStatus.FOUND: Code.SUCCESS, GetStatus.NO_MATCHED_MESSAGE: Code.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: Code.PULL_RETRY_IMMEDIATELY, GetStatus.OFFSET_FOUND_NULL: Code.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: Code.PULL_NOT_FOUND, GetStatus.OFFSET_OVERFLOW_BADLY: Code.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: Code.PULL_OFFSET_MOVED, GetStatus.OFFSET_RESET: Code.PULL_OFFSET_MOVED}


class Pull(NamedTuple):
    """A checked pull."""

    request: Request
    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    bytes_max: int
    subscription: Subscription
    broker_id: int          # the broker that its group reads from,
    slow_broker_id: int     # and while it reads what is no more in memory


class Pulling:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._counting = threading.Lock()
        self._memory = memory_limit()
        self._awaited: set[str] = set()         # light queues that had no message when somebody began to wait for one
        self._awaited_look = 0.0                # when they may be looked at again

    def processors(self) -> dict[int, Processor]:
        return {11: self._pull, 361: self._pull}

    def _pull(self, request: Request) -> Frame | None:
        bits = request.integer("sysFlag")
        pull = self._checked(request, bits)
        core = self._core
        if core.is_slave and not core.options["slaveReadEnable"]:
            return request.answer(Code.PULL_RETRY_IMMEDIATELY, "the slave serves no reads: slaveReadEnable is false",
                                  self._ext(pull, 0))
        result = self._get(pull, pull.offset)
        if bits & COMMIT_OFFSET and (offset := request.long("commitOffset", 0)) >= 0 and (core.modern or not core.is_slave):
            try:
                core.store.offsets.commit(pull.group, pull.topic, pull.queue_id, offset)
            except ValueError as error:         # too many offsets: nobody waits for an answer to the commit
                core.gathered.say(logging.WARNING, "offset of a pull", "an offset that a pull brought is not kept: %s", error)
        answer = self._answer(pull, result, pull.offset)
        if answer.code == Code.PULL_NOT_FOUND and bits & SUSPEND:
            return self._hold(pull, bits, answer)
        if answer.code == Code.PULL_OFFSET_MOVED:
            self._tell_moved(pull, int(answer.ext["nextBeginOffset"]))
        return answer

    def _checked(self, request: Request, bits: int) -> Pull:
        core = self._core
        if not core.options["brokerPermission"] & PERM_READ:
            raise Refused(Code.NO_PERMISSION, f"the broker[{core.address}] pulling message is forbidden")
        name, topic_name = request.text("consumerGroup"), request.text("topic")
        group = core.groups.find(name)
        if group is None:
            raise Refused(Code.GROUP_NOT_EXIST, f"subscription group [{name:.255}] does not exist,{FAQ}")
        if not group.consume:
            raise Refused(Code.NO_PERMISSION, f"subscription group no permission, {name}")
        topic = core.topics.find_to_read(topic_name)
        if topic is None:
            raise Refused(Code.TOPIC_NOT_EXIST, f"topic[{topic_name:.255}] not exist, apply first please!{FAQ}")
        if not topic.perm & PERM_READ:
            raise Refused(Code.NO_PERMISSION, f"the topic[{topic_name}] pulling message is forbidden")
        queue_id = request.integer("queueId")
        if not 0 <= queue_id < topic.read:
            illegal = Code.INVALID_PARAMETER if core.modern else Code.SYSTEM_ERROR
            raise Refused(illegal, f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                          f"topicConfig.readQueueNums:[{topic.read}] consumer:[{request.connection.peer}]")
        subscription = self._subscription(request, bits, group.broadcast)
        bytes_max = min(request.integer("maxMsgBytes", BYTES_MAX), BYTES_MAX)
        return Pull(request, name, topic_name, queue_id, request.long("queueOffset"),
                    min(max(request.integer("maxMsgNums"), 1), COUNT_MAX),
                    bytes_max if bytes_max > 0 else BYTES_MAX, subscription, group.broker_id, group.slow_broker_id)

    def _subscription(self, request: Request, bits: int, broadcast: bool) -> Subscription:
        core = self._core
        name, topic = request.text("consumerGroup"), request.text("topic")
        if bits & SUBSCRIPTION:
            text = request.ext.get("subscription", "")
            if len(text) > TAGS_MAX:
                raise Refused(Code.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
            try:
                found = subscription_of(topic, text, request.ext.get("expressionType", ""), 0)
            except FilterIllegal:
                raise Refused(Code.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed") from None
        else:
            group = core.clients.group(name)
            if group is None:
                raise Refused(Code.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
            if group.model == "BROADCASTING" and not broadcast:
                raise Refused(Code.NO_PERMISSION, f"the consumer group[{name}] can not consume by broadcast way")
            known = core.clients.subscription(name, topic)
            if known is None:
                raise Refused(Code.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
            if known.version < request.long("subVersion", 0):
                raise Refused(Code.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
            found = known
        if found.sql is not None and not core.options["enablePropertyFilter"]:
            raise Refused(Code.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {found.kind:.40}")
        return found

    def _get(self, pull: Pull, offset: int) -> GetResult:
        sub, begun = pull.subscription, time.perf_counter_ns()
        try:
            result = self._core.store.get(pull.topic, pull.queue_id, max(offset, 0), pull.count_max, sub.tags, sql=sub.sql,
                                          max_bytes=pull.bytes_max, _whole=True)
        except ValueError as error:
            raise Refused(Code.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        if result.status == GetStatus.FOUND:
            self._count(pull, result, time.perf_counter_ns() - begun)
        return result

    def _count(self, pull: Pull, result: GetResult, took_ns: int) -> None:
        """For the figures of the group, as a consumer of this process counts."""
        store, last = self._core.store, result[len(result) - 1]
        if self._core.groups.get(pull.group) is None:       # %LMQ%...: any text is one, and a row is never removed
            return
        with self._counting:
            store._consuming.counts_of(pull.group, pull.topic).got(
                pull.queue_id, took_ns, result, store.max_log_offset - last.offset - last.size,
                int(time.time() * 1000) - last.store_timestamp)

    def _answer(self, pull: Pull, result: GetResult, offset: int) -> Frame:
        status = result.status
        following = result.next_offset
        if offset < 0 and status != GetStatus.NO_MESSAGE_IN_QUEUE:      # as a master answers: the client continues at the start
            status, following = GetStatus.OFFSET_TOO_SMALL, result.min_offset
        if status == GetStatus.NO_MESSAGE_IN_QUEUE:
            code = Code.PULL_NOT_FOUND if offset == 0 else Code.PULL_OFFSET_MOVED
        else:
            code = _CODES[status]
        suggested, slow = self._suggested(pull, result)
        core = self._core
        if core.is_slave and code == Code.PULL_OFFSET_MOVED:        # the master knows better where the queue begins and ends
            code, following = Code.PULL_RETRY_IMMEDIATELY, offset
            suggested = pull.broker_id
        if core.is_slave and core.modern and core.master_address and not slow:
            suggested = 0
            if code != Code.SUCCESS:
                code = Code.PULL_RETRY_IMMEDIATELY
        ext = {"suggestWhichBrokerId": str(suggested), "nextBeginOffset": str(following),
               "minOffset": str(max(result.min_offset, 0)), "maxOffset": str(result.max_offset)}
        body = b""
        if code == Code.SUCCESS:
            body = b"".join([message.raw for message in result])
        return pull.request.answer(code, status.name, ext, body)

    def _ext(self, pull: Pull, suggested: int) -> dict[str, str]:
        store = self._core.store
        return {"suggestWhichBrokerId": str(suggested), "nextBeginOffset": str(pull.offset),
                "minOffset": str(max(store.min_offset(pull.topic, pull.queue_id), 0)),
                "maxOffset": str(store.max_offset(pull.topic, pull.queue_id))}

    def _suggested(self, pull: Pull, result: GetResult) -> tuple[int, bool]:
        """Which broker the group shall pull from next, and whether that is because it reads what lies so far from the end of
        the log that it may not be in memory any more. Source: PullMessageProcessor, DefaultMessageStore.getMessage."""
        core = self._core
        if not core.options["slaveReadEnable"]:
            return 0, False
        slow = False
        if result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE) and result.next_offset > 0:
            entry = core.store.raw_entry(pull.topic, pull.queue_id, result.next_offset - 1)
            memory = self._memory * core.store.options.memory_ratio_pct // 100
            slow = entry is not None and core.store.max_log_offset - entry[0] > memory
        return (pull.slow_broker_id if slow else pull.broker_id), slow

    def _tell_moved(self, pull: Pull, following: int) -> None:
        """Stores the event that RocketMQ stores when it sends a group elsewhere. Who watches groups reads it; the pull does
        not depend on it."""
        core = self._core
        event = {"consumerGroup": pull.group, "messageQueue": {
            "brokerName": core.options["brokerName"], "queueId": pull.queue_id, "topic": pull.topic},
            "offsetNew": following, "offsetRequest": pull.offset}
        try:
            core.store.put_async(OFFSET_MOVED_EVENT, body_of(event), queue_id=0, tags=pull.group, keys=[pull.group],
                                 properties={"DELAY": "0"}, born_host=core.store.options.store_host, wait=False)
        except (RmqStoreError, ValueError) as error:
            core.gathered.say(logging.WARNING, "offset moved", "group %s pulls %s of queue %d at offset %d, and continues at "
                              "%d; the event of it is not stored: %s", pull.group, pull.topic, pull.queue_id, pull.offset,
                              following, error)

    def _may_await(self, name: str) -> bool:
        """A queue that is waited for stays in the store's table, and clients can name any light queue."""
        with self._counting:
            if name in self._awaited or self._filled(name):
                return True
            if len(self._awaited) >= AWAITED_MAX and time.monotonic() >= self._awaited_look:
                self._awaited = {one for one in self._awaited if not self._filled(one)}
                self._awaited_look = time.monotonic() + AWAITED_LOOK_S
            return len(self._awaited) < AWAITED_MAX

    def _filled(self, name: str) -> bool:
        return self._core.store.max_offset(name, 0) > 0

    def _hold(self, pull: Pull, bits: int, answer: Frame) -> Frame | None:
        """Keeps the pull; the answer that it has now is sent when nothing comes."""
        request, options = pull.request, self._core.options
        light = is_light(self._core.store, pull.topic)
        if light and not self._may_await(pull.topic):
            raise Refused(Code.SYSTEM_BUSY, f"light queue {pull.topic} has no message, and clients wait for {AWAITED_MAX} such "
                          "queues already: wait for queues that have messages")
        wait_ms = min(request.long("suspendTimeoutMillis", 0), SUSPEND_MAX_MS)
        if not options["longPollingEnable"]:
            wait_ms = options["shortPollingTimeMills"]
        sub = pull.subscription

        def run(last: bool) -> bool:
            nonlocal answer
            try:
                self._checked(request, bits)        # what was allowed may not be any more
                result = self._get(pull, held.offset)
                found = self._answer(pull, result, held.offset)
            except Refused as refused:
                self._core.reply(request, request.answer(refused.code, refused.remark))
                return True
            if found.code == Code.PULL_RETRY_IMMEDIATELY and not last:
                # What came does not match: the search continues behind it, and the client learns of it at the end.
                held.offset = result.next_offset
                found = request.answer(Code.PULL_NOT_FOUND, found.remark, found.ext)
            answer = found
            if last or found.code != Code.PULL_NOT_FOUND:
                self._core.reply(request, found)
                return True
            return False

        def look(at: int) -> tuple[int | None, int]:
            result = self._core.store.get(pull.topic, pull.queue_id, at, 1, sub.tags, sql=sub.sql, _whole=True)
            if result.status == GetStatus.NO_MATCHED_MESSAGE:
                return None, result.next_offset
            batch = len(result) == 0 or result[0].sys_flag & INNER_BATCH       # whose first message may be the one
            return at if batch else result.next_offset - 1, result.next_offset

        all_of_them = sub.tags is None and sub.sql is None
        held = Held(request.connection.id, pull.topic, pull.queue_id, pull.offset, time.monotonic() + max(wait_ms, 0) / 1000,
                    run, None if all_of_them else (sub.kind, sub.text), None if all_of_them else look)
        request.frame.body = b""        # nothing needs it
        if not self._core.held.add(held):
            return answer
        if light and not self._filled(pull.topic):
            with self._counting:
                self._awaited.add(pull.topic)
        return None

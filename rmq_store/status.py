"""Outcomes with RocketMQ's names, spelled and ordered as in RocketMQ 5.x. Each says what happened and what to do.

Tables only; any thread. A value is the ordinal of the Java enum, so that `PutStatus(n)` decodes what C code returns.
`python -m rmq_store.config.document statuses` prints docs/statuses.md.
Source: PutMessageStatus, AppendMessageStatus, GetMessageStatus, RunningFlags of org.apache.rocketmq.store (5.3.3).
"""
from enum import IntEnum, IntFlag

__all__ = ["GetStatus", "PutStatus", "RunningFlags"]

NEVER_HERE = "Only a broker or a replica returns it."


class _Status(IntEnum):
    """A status prints as its name. To JSON, to arithmetic and to a format such as "d" it is the number that it is.

    happened, to_do: one sentence or two each, for people. `to_do` is NEVER_HERE where only a broker or a replica returns it.
    """

    happened: str
    to_do: str

    def __new__(cls, number: int, happened: str = "", to_do: str = NEVER_HERE) -> "_Status":
        """A row: the number, what happened, what to do. The defaults let type checkers accept PutStatus(n)."""
        self = int.__new__(cls, number)
        self._value_ = number
        self.happened = happened
        self.to_do = to_do
        return self

    def __str__(self) -> str:
        return self.name

    def __format__(self, form: str) -> str:
        return format(int(self), form) if form else self.name


class PutStatus(_Status):
    """The outcome of a put.

    With FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE the message is stored, but not yet as durable as
    requested. These statuses come on a result. Every other status but PUT_OK comes in an exception and means that the message
    was not stored. Exception: after a DurabilityError, the message may be in the log.
    """

    PUT_OK = 0, "The message is stored, and as durable as requested.", "Nothing."
    FLUSH_DISK_TIMEOUT = (
        1, "The message is stored, but the device did not confirm it within flush_deadline_ms.",
        "Do not put the message again. Call flush() and wait until it returns, or check the device if this happens often.")
    FLUSH_SLAVE_TIMEOUT = (
        2, "The message is stored, but no slave confirmed it within slave_timeout_ms.",
        "Do not put the message again. A slave gets it when it can; store.replicas() shows how far each slave is.")
    SLAVE_NOT_AVAILABLE = (
        3, "The message is stored, but no slave is connected, or every slave is too far behind.",
        "Do not put the message again. Check the slaves: store.replicas() lists those that are connected.")
    SERVICE_NOT_AVAILABLE = (
        4, "The message is not stored: the store is closed, read-only, full or failed, or refuses this kind of message.",
        "Follow the text of the exception. After a DurabilityError, look for the message before you put it again.")
    CREATE_MAPPED_FILE_FAILED = (
        5, "The message is not stored: the next commit-log file was not made in time, or the disk has no space for it.",
        "Make room on the disk, or check the device. Then put the message again.")
    MESSAGE_ILLEGAL = (
        6, "The message is not stored: a record cannot hold its topic, body, queue id or another field.",
        "Correct the message. The text of the exception names the field, its value and the limit.")
    PROPERTIES_SIZE_EXCEEDED = (
        7, "The message is not stored: its encoded properties are longer than 32767 bytes.",
        "Shorten the properties, or move long values into the body.")
    OS_PAGE_CACHE_BUSY = (
        8, "The message is not stored: another put held the put lock for longer than busy_after_ms, as on a slow device.",
        "Put the message again later. If this happens often, check the device.")
    UNKNOWN_ERROR = (
        9, "The message is not stored: a put hook failed. From a broker: an error that has no status of its own.",
        "Correct the hook that the text of the exception names, or remove it. Then put the message again.")
    IN_SYNC_REPLICAS_NOT_ENOUGH = (
        10, "The message is not stored: fewer replicas are in sync than in_sync_replicas asks for.",
        "Connect more slaves; store.replicas() lists those that are connected. Then put the message again.")
    PUT_TO_REMOTE_BROKER_FAIL = 11, "The message is not stored: a put to another broker failed."
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = (
        12, "The message is not stored: it would make more light queues than lmq_count_max.",
        "Put to light queues that are there, or raise lmq_count_max.")
    WHEEL_TIMER_FLOW_CONTROL = (
        13, "The message is not stored: too many timer messages are due in its slot.",
        "Choose another time, put the message again later, or raise timer_congest_num_each_slot.")
    WHEEL_TIMER_MSG_ILLEGAL = (
        14, "The message is not stored: its time of delivery is wrong, too late, or past for a recall.",
        "Correct the time. The text of the exception names the value and the limit.")
    WHEEL_TIMER_NOT_ENABLE = (
        15, "The message is not stored: it has a time of delivery, and the timer wheel is off.",
        "Open the store with timer_wheel_enable=True.")

    @property
    def stored(self) -> bool:
        """True if the message is in the log (RocketMQ: PutMessageResult.isOk)."""
        return self <= PutStatus.SLAVE_NOT_AVAILABLE


class RunningFlags(IntFlag):
    """Why an open store does not serve now: the bits of RocketMQ's RunningFlags. 0: it serves. docs/hooks.md says what puts and
    gets then return."""

    NOT_READABLE = 1                # set_readable(False): gets are refused
    NOT_WRITEABLE = 2               # set_writeable(False), or readonly=True: puts are refused
    WRITE_LOGICS_QUEUE_ERROR = 4    # writing a queue file failed; with it comes FENCED
    WRITE_INDEX_FILE_ERROR = 8      # writing an index file failed; with it comes FENCED
    DISK_FULL = 16                  # the disk is fuller than disk_full_pct: puts are refused
    FENCED = 32                     # set_fenced(True), or a write or a sync failed: puts are refused
    LOGIC_DISK_FULL = 64            # no space for queues or index: puts are refused at the next commit-log file


class GetStatus(_Status):
    """The outcome of a get. `next_offset` of the result says where to continue."""

    FOUND = 0, "The result has at least one message.", "Handle the messages, then get from next_offset."
    NO_MATCHED_MESSAGE = (
        1, "The get examined queue entries, but no message has one of the tags, or fulfils the SQL92 filter.",
        "Get again from next_offset.")
    MESSAGE_WAS_REMOVING = (
        2, "The queue has entries, but their messages are deleted or damaged.",
        "Get again from next_offset. If the messages were not deleted, run `rmqstore verify`.")
    OFFSET_FOUND_NULL = (
        3, "The queue file of the offset was deleted while the get read it: by cleaning, or with its topic.",
        "Get again from next_offset, the start of the next queue file.")
    OFFSET_OVERFLOW_BADLY = (
        4, "The offset lies beyond the end of the queue.",
        "Continue at next_offset, the end of the queue. Check where the offset came from.")
    OFFSET_OVERFLOW_ONE = (
        5, "The offset is the end of the queue. No message has come yet.",
        "Get from the same offset again later, or pass `wait` to wait for a message.")
    OFFSET_TOO_SMALL = (
        6, "The offset lies before the start of the queue, for example because cleaning deleted messages.",
        "Continue at next_offset, the oldest message of the queue.")
    NO_MATCHED_LOGIC_QUEUE = 7, "The broker has no such queue. This store says NO_MESSAGE_IN_QUEUE instead."
    NO_MESSAGE_IN_QUEUE = (
        8, "The queue never had a message, or the topic or the queue does not exist.",
        "Check the topic and the queue id, or pass `wait` to wait for the first message.")
    OFFSET_RESET = 9, "The broker reset the offset of the group."

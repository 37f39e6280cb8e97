"""Outcomes with upstream's names, spelled and ordered as in RocketMQ 5.x.

Tables only; any thread. A value is the ordinal of the Java enum, so that `PutStatus(n)` decodes what C code returns.
Source: PutMessageStatus, AppendMessageStatus, GetMessageStatus of org.apache.rocketmq.store (5.3.3).
"""
from enum import IntEnum

__all__ = ["AppendStatus", "GetStatus", "PutStatus"]


class _Status(IntEnum):
    """A status prints as its name. To JSON, to arithmetic and to a format such as "d" it is the number that it is."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, form: str) -> str:
        return format(int(self), form) if form else self.name


class PutStatus(_Status):
    """What became of a put.

    FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE are stored, but not yet as safe as asked: they come on a
    result. Every other status but PUT_OK means that nothing was stored: it comes in an exception (errors.PutError).
    """

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15

    @property
    def stored(self) -> bool:
        """True where the message is in the log (upstream: PutMessageResult.isOk)."""
        return self <= PutStatus.SLAVE_NOT_AVAILABLE


class AppendStatus(_Status):
    """What became of one append to a mapped file."""

    PUT_OK = 0
    END_OF_FILE = 1
    MESSAGE_SIZE_EXCEEDED = 2
    PROPERTIES_SIZE_EXCEEDED = 3
    UNKNOWN_ERROR = 4


class GetStatus(_Status):
    """Why a get returned what it did; next_offset says where to go on."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9

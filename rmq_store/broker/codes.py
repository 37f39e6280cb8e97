"""Numbers and words of the protocol that processors share: request codes, answer codes, permissions, reserved topics.

Source: RequestCode, ResponseCode, PermName, TopicValidator, MixAll (4.9.8, 5.3.3). Tables only.
"""
from rmq_store.status import PutStatus

__all__ = ["DEAD", "DENY", "FAQ", "NO_SEND", "PERM_INHERIT", "PERM_READ", "PERM_WRITE", "PUB", "PUT_ANSWERS", "RETRY", "SUB",
           "WAITING", "Code"]


class Code:
    """Answer codes."""

    SUCCESS, SYSTEM_ERROR, SYSTEM_BUSY, NOT_SUPPORTED, TRANSACTION_FAILED = 0, 1, 2, 3, 4
    FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, MESSAGE_ILLEGAL, SERVICE_NOT_AVAILABLE = 10, 11, 12, 13, 14
    NO_PERMISSION, TOPIC_NOT_EXIST = 16, 17
    PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED, QUERY_NOT_FOUND = 19, 20, 21, 22
    SUBSCRIPTION_PARSE_FAILED, SUBSCRIPTION_NOT_EXIST, SUBSCRIPTION_NOT_LATEST, GROUP_NOT_EXIST = 23, 24, 25, 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE, CONSUME_MSG_TIMEOUT = 206, 207
    ILLEGAL_OPERATION = 604


PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
DENY, PUB, SUB = 1, 4, 8        # of accounts
RETRY, DEAD = "%RETRY%", "%DLQ%"
# Topics into which no client may send. RocketMQ takes sends into that of the timer, which passes them on to any topic.
NO_SEND = frozenset(("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                     "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_wheel_timer"))
# topics whose records wait there for another one, or were given up: only an administrator reads these topics themselves
WAITING = frozenset(("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "TRANS_CHECK_MAX_TIME_TOPIC"))
FAQ = " See docs/broker.md of rmq_store."

_SIZES = "the message is illegal, maybe msg body or properties length not matched."
# put status -> (answer code, remark)
PUT_ANSWERS: dict[PutStatus, tuple[int, str]] = {
    PutStatus.PUT_OK: (Code.SUCCESS, ""),
    PutStatus.FLUSH_DISK_TIMEOUT: (Code.FLUSH_DISK_TIMEOUT, ""),
    PutStatus.FLUSH_SLAVE_TIMEOUT: (Code.FLUSH_SLAVE_TIMEOUT, ""),
    PutStatus.SLAVE_NOT_AVAILABLE: (Code.SLAVE_NOT_AVAILABLE, ""),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (Code.SYSTEM_ERROR, "create mapped file failed, server is busy or broken."),
    PutStatus.MESSAGE_ILLEGAL: (Code.MESSAGE_ILLEGAL, _SIZES),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (Code.MESSAGE_ILLEGAL, _SIZES),
    PutStatus.SERVICE_NOT_AVAILABLE: (Code.SERVICE_NOT_AVAILABLE, "service not available now."),
    PutStatus.OS_PAGE_CACHE_BUSY: (Code.SYSTEM_ERROR, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        Code.MESSAGE_ILLEGAL, "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq "
        "consumeQueue num exceed maxLmqConsumeQueueNum config num."),
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: (Code.SYSTEM_ERROR, "timer message is under flow control."),
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: (Code.MESSAGE_ILLEGAL, "timer message illegal, the delay time should not be bigger than "
                                        "the max delay; or the delay properties are wrong."),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (Code.SYSTEM_ERROR, "accurate timer message is not enabled."),
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (Code.SYSTEM_ERROR, "in-sync replicas not enough"),
    PutStatus.PUT_TO_REMOTE_BROKER_FAIL: (Code.SYSTEM_ERROR, "put to remote broker fail"),
    PutStatus.UNKNOWN_ERROR: (Code.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}

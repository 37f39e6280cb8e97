"""Who may send which request: signatures and permissions (RocketMQ: PlainAccessValidator, PlainPermissionChecker).

A request carries AccessKey and Signature. The latter is Base64 of HMAC-SHA1, under the account's secretKey, of the values of
the other fields in the order of their names, and of the body. `Access.check` is asked before any processor. What it refuses
gets the answer that RocketMQ gives. Any thread.

The rules are here alone. The network thread checks signatures itself, and answers a request if `check` has allowed the account
the same topic and group before, by the same rules. It asks for `look` once a second. All other requests come here.
"""
import base64
import hmac
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from rmq_store.broker.acl_file import PUB, SUB, Account, Rules, acl_files, read_rules
from rmq_store.broker.codes import RETRY, Code
from rmq_store.broker.request import Handle, Refused, json_body
from rmq_store.errors import ConfigError
from rmq_store.network.front import NativeFront
from rmq_store.remoting.frame import Frame

__all__ = ["Access"]

LOOK_S = 1.0            # between two looks whether the file changed
STILL_S = 0.05          # a change counts when it is the same for so long: half a file can be a file, with other permissions
ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
UNIQUE = "_UNIQUE_KEY_QUERY"        # clients of 4.9.8 and later sign this field; those before do not, and RocketMQ expects that
TRACE = "RMQ_SYS_TRACE_TOPIC"
# make, change and delete topics and groups, and change options
ADMIN = frozenset((17, 25, 200, 207, 215))
SENDS, READS = (10, 310, 320), (11, 361, 15)
REPLIES, RECALL, RESET_OFFSET = (324, 325), 370, 222
GRANTED = frozenset((*SENDS, *READS))
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
log = logging.getLogger("rmq_store.broker")


class Access:
    """The rules of a file or a directory, read again when it changes."""

    def __init__(self, path: str, cluster: str) -> None:
        """Raises ConfigError."""
        self._path, self._reply_topic = path, cluster + "_REPLY_TOPIC"
        self._lock = threading.Lock()
        self._due = time.monotonic() + LOOK_S
        self._problem = ""
        self._front: NativeFront | None = None
        try:
            self._files = self._seen = acl_files(path)
            self._rules, self._generation = read_rules(self._files), 1
        except OSError as error:
            raise ConfigError(f"aclEnable is on, and {path} cannot be read: {error.strerror}; make the file, or name another "
                              "by aclFile") from None

    def tell(self, front: NativeFront) -> None:
        """Before `front` serves: it learns the accounts now, and from `check` what they may do."""
        self._front = front
        self._tell_accounts()

    def check(self, connection: Handle, frame: Frame) -> None:
        """connection: the client's, whose address may need no signature. Raises Refused."""
        if time.monotonic() >= self._due:
            self.look()
        generation, rules = self._generation, self._rules       # in this order: an older number grants nothing
        host = connection.peer.rpartition(":")[0].strip("[]")
        if any(white(host) for white in rules.white):
            if self._front is not None:
                self._front.trust(generation, connection.id)
            return
        account = _signed(rules, host, frame)
        if account is not None:
            if not (frame.code in REPLIES and _topic(frame) == self._reply_topic):      # whoever was asked may answer
                _check_permissions(account, frame)
            if self._front is not None and frame.code in GRANTED:
                self._front.grant(generation, account.access_key, _topic(frame), frame.ext.get("consumerGroup", "")
                                  if frame.code in READS else None)

    def _tell_accounts(self) -> None:
        if self._front is not None:
            accounts = self._rules.accounts.values()
            self._front.accounts(self._generation, [(account.access_key.encode(), account.secret_key) for account in accounts])
            self._front.fresh(int(self._due * 1e9))

    def look(self) -> None:
        """Takes the rules anew if a file changed, and two looks found it the same. What is wrong there is logged, and the
        rules stay. Any thread."""
        if not self._lock.acquire(blocking=False):
            return              # another request looks
        try:
            self._due = time.monotonic() + LOOK_S
            files = acl_files(self._path)
            if files != self._seen:         # somebody may still write it
                self._seen, self._due = files, time.monotonic() + min(STILL_S, LOOK_S)
            elif files != self._files or self._problem:
                self._rules, self._files, self._problem = read_rules(files), files, ""
                self._generation += 1
                self._tell_accounts()
                log.info("the rules of %s were read again: %d accounts", self._path, len(self._rules.accounts))
        except (ConfigError, OSError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.error("the ACL rules stay as they were: %s", error)
        finally:
            if self._front is not None:
                self._front.fresh(int(self._due * 1e9))
            self._lock.release()


def _refused(text: str) -> Refused:
    return Refused(Code.SYSTEM_ERROR, EXCEPTION + text)


def _signed(rules: Rules, host: str, frame: Frame) -> Account | None:
    """The account that signed the request; None where its address alone suffices. Raises Refused."""
    key = frame.ext.get(ACCESS_KEY)
    if key is None:
        raise _refused("No accessKey is configured")
    account = rules.accounts.get(key)
    if account is None:
        raise _refused(f"No acl config for {key:.80}")
    if account.white(host):
        return None
    given = frame.ext.get(SIGNATURE, "").encode(errors="replace")
    if not any(hmac.compare_digest(_signature(account, frame, left_out), given)
               for left_out in (("", UNIQUE) if UNIQUE in frame.ext else ("",))):
        raise _refused(f"Check signature failed for accessKey={key}")
    return account


def _signature(account: Account, frame: Frame, left_out: str) -> bytes:
    content = "".join(frame.ext[name] for name in sorted(frame.ext) if name not in (SIGNATURE, left_out))
    digest = hmac.new(account.secret_key, content.encode(errors="replace"), "sha1")
    digest.update(frame.body)
    return base64.b64encode(digest.digest())


def _check_permissions(account: Account, frame: Frame) -> None:
    needed = list(_resources(frame))
    if needed == [(TRACE, PUB)]:
        return
    if frame.code in ADMIN and not account.admin:
        raise _refused(f"Need admin permission for request code={frame.code}, but accessKey={account.access_key} is not")
    if account.admin and account.perms is None:
        return
    for resource, perm in needed:
        if not account.allows(resource, perm):
            kind, name = ("group", resource[len(RETRY):]) if resource.startswith(RETRY) else ("topic", resource)
            raise _refused(f"No default permission for {kind}:{name:.255}")


def _resources(frame: Frame) -> Iterator[tuple[str, int]]:
    """(topic, or %RETRY%group, what the request does with it)."""
    ext, code = frame.ext, frame.code
    if code in SENDS or code in REPLIES or code == RECALL:
        topic = _topic(frame)
        yield topic, SUB if topic.startswith(RETRY) else PUB      # a consumer puts back what failed
    elif code == 36:
        yield RETRY + ext.get("group", ""), SUB
    elif code in READS:
        yield _topic(frame), SUB
        yield RETRY + ext.get("consumerGroup", ""), SUB
    elif code == RESET_OFFSET:
        yield ext.get("topic", ""), SUB
        yield RETRY + ext.get("group", ""), SUB
    elif code == 12:
        yield ext.get("topic", ""), SUB
    elif code in (35, 38):
        if code == 38 or ext.get("consumerGroup"):
            yield RETRY + ext.get("consumerGroup", ""), SUB
    elif code == 34:
        yield from _of_heartbeat(frame)


def _topic(frame: Frame) -> str:
    return frame.ext.get("b" if frame.code in (310, 320, 325) else "topic", "")


def _of_heartbeat(frame: Frame) -> Iterator[tuple[str, int]]:
    for data in _dicts(json_body(frame.body).get("consumerDataSet")):
        yield RETRY + str(data.get("groupName") or ""), SUB
        for subscription in _dicts(data.get("subscriptionDataSet")):
            yield str(subscription.get("topic") or ""), SUB


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []

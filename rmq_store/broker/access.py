"""Who may send which request: signatures and permissions (RocketMQ: PlainAccessValidator, PlainPermissionChecker).

A request carries AccessKey and Signature. The latter is Base64 of HMAC-SHA1, under the account's secretKey, of the values of
the other fields in the order of their names, and of the body. `Access.check` is asked before any processor. What it refuses
gets the answer that RocketMQ gives. Any thread.

broker/resources.py says what a request needs, and this module alone who has it. The network thread checks signatures itself.
It answers a request if `check` has allowed the account the same topic and group before, by the same rules. It asks for `look`
once a second. All other requests come here.
"""
import base64
import hmac
import logging
import threading
import time

from rmq_store.broker.acl_file import Account, Rules, acl_files, read_rules
from rmq_store.broker.codes import PUB, Code
from rmq_store.broker.request import Handle, Refused
from rmq_store.broker.resources import EXCEPTION, ROWS, Row, refuse, topic_of
from rmq_store.errors import ConfigError
from rmq_store.network.front import NativeFront
from rmq_store.remoting.frame import Frame

__all__ = ["Access"]

LOOK_S = 1.0            # between two looks whether the file changed
STILL_S = 0.05          # a change counts when it is the same for so long: half a file can be a file, with other permissions
ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
UNIQUE = "_UNIQUE_KEY_QUERY"        # clients of 4.9.8 and later sign this field; those before do not, and RocketMQ expects that
TRACE = "RMQ_SYS_TRACE_TOPIC"
SENDS, READS = (10, 310, 320), (11, 361, 15)
REPLIES = 324, 325
GRANTED = frozenset((*SENDS, *READS))
NONE = Row("", "")
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

    def check(self, connection: Handle, frame: Frame) -> Account | None:
        """The account that signed the request. connection: the client's, whose address may need no signature: None. Raises
        Refused."""
        if time.monotonic() >= self._due:
            self.look()
        generation, rules = self._generation, self._rules       # in this order: an older number grants nothing
        host = connection.peer.rpartition(":")[0].strip("[]")
        if any(white(host) for white in rules.white):
            if self._front is not None:
                self._front.trust(generation, connection.id)
            return None
        account = _signed(rules, host, frame)
        if account is not None:
            # whoever was asked may answer
            _check_permissions(account, frame, self._reply_topic if frame.code in REPLIES else "")
            if self._front is not None and frame.code in GRANTED:
                self._front.grant(generation, account.access_key, topic_of(frame), frame.ext.get("consumerGroup", "")
                                  if frame.code in READS else None)
        return account

    def may(self, access_key: str, resource: str, perm: int) -> bool:
        """Whether an account that was checked before has this permission now. access_key "": its address needs none."""
        account = self._rules.accounts.get(access_key)
        return not access_key or (account is not None and account.may(resource, perm))

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


def _check_permissions(account: Account, frame: Frame, free: str) -> None:
    """free: a topic into which this request may send without a permission; "" for none."""
    row = ROWS.get(frame.code, NONE)
    needed = [] if row.of is None else [one for one in row.of(frame) if one[0] != free or not free]
    if needed == [(TRACE, PUB)]:
        return
    if row.admin and not account.admin:
        raise _refused(f"Need admin permission for request code={frame.code}, but accessKey={account.access_key} is not")
    for resource, perm in needed:
        if not account.may(resource, perm):
            raise refuse(resource)

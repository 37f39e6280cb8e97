"""One request as a processor sees it, and its fields. What a client sent wrong raises Refused, which becomes the answer.

Any thread. Numbers are checked against the range of Java's int or long before anybody uses them.
"""
import json
from typing import TYPE_CHECKING, Any, Protocol

from rmq_store.broker.codes import Code
from rmq_store.config.upstream_json import parse_json
from rmq_store.remoting.frame import Frame

if TYPE_CHECKING:
    from rmq_store.broker.acl_file import Account

__all__ = ["LONG", "Handle", "Refused", "Request", "body_of", "json_body"]

INT, LONG = 1 << 31, 1 << 63
BODY_MAX = 1 << 20              # bytes of a JSON body,
BODIES_MAX = {34: 4 << 20}      # and of those of some codes: a heartbeat names up to 16,384 subscriptions
PARTS_MAX = 1 << 18             # values of one, as far as its commas and brackets tell


class Handle(Protocol):
    """A connection of a front, native or Python. Any thread may call it. `peer` and `local` are addresses as host:port; `local`
    is the one under which the client reached this broker."""

    id: int
    peer: str
    local: str

    def send(self, data: bytes, /) -> bool: ...
    def close(self) -> None: ...


class Refused(Exception):
    """A request that is answered with another code than success."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code, self.remark = code, remark

    def forget(self) -> None:
        """Lets go of what failed before it: the frames of both hold the body of the request, until the garbage collector
        runs."""
        self.__traceback__ = self.__cause__ = self.__context__ = None


class Request:
    """A frame and the connection it came on."""

    __slots__ = ("account", "connection", "ext", "frame")

    def __init__(self, connection: Handle, frame: Frame) -> None:
        self.connection, self.frame, self.ext = connection, frame, frame.ext
        self.account: Account | None = None         # that signed it; None: nothing is asked of it

    def text(self, name: str) -> str:
        """A field that has to be there."""
        value = self.ext.get(name)
        if value is None:
            raise Refused(Code.SYSTEM_ERROR, f"the custom field <{name}> is null")
        return value

    def integer(self, name: str, default: int | None = None, limit: int = INT) -> int:
        """A field that is a number of Java's int; limit=LONG for a long. default None: it has to be there."""
        value = self.ext.get(name) or None
        if value is None:
            if default is None:
                raise Refused(Code.SYSTEM_ERROR, f"the custom field <{name}> is null")
            return default
        digits = value[1:] if value[0] in "+-" else value
        number = int(value) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else limit
        if not -limit <= number < limit:
            raise Refused(Code.SYSTEM_ERROR, f"the custom field <{name}> is {value!r:.60}, no number of Java's "
                          f"{'int' if limit == INT else 'long'}")
        return number

    def long(self, name: str, default: int | None = None) -> int:
        return self.integer(name, default, LONG)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean, as Java or the C++ client writes it."""
        value = self.ext.get(name)
        return default if value is None else value.lower() in ("true", "1")

    def answer(self, code: int = Code.SUCCESS, remark: str = "", ext: dict[str, str] | None = None,
               body: bytes = b"") -> Frame:
        return self.frame.answer(code, remark, ext, body)

    def json(self) -> dict[str, Any]:
        """The body, a JSON object, also in fastjson's dialect."""
        return json_body(self.frame)


def json_body(frame: Frame) -> dict[str, Any]:
    """The JSON object that a request carries. Its size is looked at first: to read 16 MiB of brackets takes seconds in which no
    other request is served. Raises Refused."""
    body, most = frame.body, BODIES_MAX.get(frame.code, BODY_MAX)
    if len(body) > most:
        raise Refused(Code.SYSTEM_ERROR, f"the body of request {frame.code} has {len(body)} bytes, the limit is {most}: send "
                      "less in one request")
    if (parts := body.count(b",") + body.count(b"[") + body.count(b"{")) > PARTS_MAX:
        raise Refused(Code.SYSTEM_ERROR, f"the body of request {frame.code} has {parts} values, the limit is {PARTS_MAX}: send "
                      "less in one request")
    try:
        text = body.decode()
        try:
            found = json.loads(text)
        except ValueError:
            found = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise Refused(Code.SYSTEM_ERROR, f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(Code.SYSTEM_ERROR, "the body is no JSON object")
    return found


def body_of(value: object) -> bytes:
    """JSON as an answer carries it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

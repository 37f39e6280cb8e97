"""Frames of RocketMQ remoting: length, header as JSON or binary, body (RocketMQ: RemotingCommand).

Pure functions on bytes. Every length is checked against the bytes that are there before it is used, and a header that does not
parse raises BadFrame, upon which a server closes the connection, as RocketMQ does.
"""
import json
import struct
from typing import Any

from rmq_store.fields import Fields

__all__ = ["BODY_MAX", "FRAME_MAX", "HEADER_MAX", "BadFrame", "Frame", "decode", "encode", "fitting", "frame_size"]

FRAME_MAX = 1 << 24         # bytes of a frame with its length field; RocketMQ: com.rocketmq.remoting.frameMaxLength
HEADER_MAX = 1 << 18        # bytes of a header: 32,767 of properties, each of which may be an escape of 6
BODY_MAX = FRAME_MAX - HEADER_MAX - 8
REMARK_MAX = 16384          # characters, which may be escapes of 12
EXT_MAX = 128               # entries of ext; the longest real header has 20
JSON, BINARY = 0, 1
RESPONSE, ONEWAY = 1, 2
SYSTEM_ERROR = 1            # a code of answers
LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
             "NODE_JS")
_TOTAL, _MARK = struct.Struct(">i"), struct.Struct(">4xI")       # of a frame
VERSION = 409               # the ordinal of 4.9.8, which clients switch on


class BadFrame(ValueError):
    """Bytes that are no frame. The text names the field, its value and the limit."""


class Frame(Fields):
    """One request or answer. `ext` maps strings to strings; a missing remark is an empty one."""

    __slots__ = ("body", "code", "ext", "flag", "language", "opaque", "remark", "serialize", "version")

    def __init__(self, code: int, opaque: int = 0, ext: dict[str, str] | None = None, body: bytes = b"", flag: int = 0,
                 remark: str = "", language: str = "PYTHON", version: int = VERSION, serialize: int = JSON) -> None:
        self.code, self.opaque, self.body, self.flag, self.remark = code, opaque, body, flag, remark
        self.ext: dict[str, str] = {} if ext is None else ext
        self.language, self.version, self.serialize = language, version, serialize

    def answer(self, code: int = 0, remark: str = "", ext: dict[str, str] | None = None, body: bytes = b"") -> "Frame":
        """The answer to this request, in the serialize type of the request."""
        return Frame(code, self.opaque, ext or {}, body, RESPONSE, remark, serialize=self.serialize)


def frame_size(start: bytes | bytearray | memoryview) -> int:
    """The size in bytes of the frame that begins so, or 0 if fewer than 8 bytes are there. Raises BadFrame on a size that no
    frame has, so that a server closes before it buffers anything."""
    if len(start) < 8:
        if len(start) >= 4:
            _total(start)
        return 0
    total = _total(start)
    kind, header = _mark(start)
    if kind not in (JSON, BINARY):
        raise BadFrame(f"serialize type {kind} is neither 0 (JSON) nor 1 (binary)")
    if header > min(total - 4, HEADER_MAX):
        raise BadFrame(f"header length {header} is over {min(total - 4, HEADER_MAX)}")
    return 4 + total


def _total(start: bytes | bytearray | memoryview) -> int:
    total: int = _TOTAL.unpack_from(start)[0]
    if not 4 <= total <= FRAME_MAX - 4:
        raise BadFrame(f"frame length {total} is outside 4 to {FRAME_MAX - 4}")
    return total


def _mark(start: bytes | bytearray | memoryview) -> tuple[int, int]:
    """(serialize type, header length) of a frame that begins so."""
    mark: int = _MARK.unpack_from(start)[0]
    return mark >> 24, mark & 0xFFFFFF


def decode(data: bytes | bytearray) -> Frame:
    """The frame that `data` holds, whole and without a byte behind it. Raises BadFrame."""
    if len(data) < 8 or frame_size(data) != len(data):
        raise BadFrame(f"{len(data)} bytes are not one whole frame")
    kind, header = _mark(data)
    end = 8 + header
    parse = _binary if kind == BINARY else _json
    frame = parse(bytes(data[8:end]))
    frame.body = bytes(data[end:])
    return frame


def _json(header: bytes) -> Frame:
    try:
        h = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"the JSON header does not parse: {error}") from error
    if not isinstance(h, dict):
        raise BadFrame("the JSON header is no object")
    ext = h.get("extFields") or {}
    if not isinstance(ext, dict) or len(ext) > EXT_MAX:
        raise BadFrame(f"extFields is no object of at most {EXT_MAX} entries")
    numbers: dict[str, Any] = {name: h.get(name, default)
                               for name, default in (("code", None), ("opaque", 0), ("flag", 0), ("version", 0))}
    for name, value in numbers.items():
        if type(value) is not int or not -1 << 31 <= value < 1 << 31:
            raise BadFrame(f"{name} is no 32-bit integer: {value!r:.40}")
    fields = {_text(key): _text(value) for key, value in ext.items() if value is not None}
    return Frame(numbers["code"], numbers["opaque"], fields,
                 flag=numbers["flag"], remark=_text(h.get("remark") or ""), language=_text(h.get("language") or "OTHER"),
                 version=numbers["version"])


def _text(value: object) -> str:
    """A value of ext as a string: the C++ client sends bare numbers."""
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:      # half of a pair, which JSON can spell and nobody can answer with
                raise BadFrame(f"{value!r:.40} is no text") from None
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return json.dumps(value)
    raise BadFrame(f"a {type(value).__name__} stands where a header has a string")


def _binary(header: bytes) -> Frame:
    try:
        code, language, version, opaque, flag = struct.unpack_from(">hbhii", header)
        remark, at = _sized(header, 13, 4)
        fields, at = _sized(header, at, 4)
        if at != len(header):
            raise BadFrame(f"{len(header) - at} bytes stand behind the binary header")
        ext: dict[str, str] = {}
        at = 0
        while at < len(fields):
            key, at = _sized(fields, at, 2)
            value, at = _sized(fields, at, 4)
            ext[key.decode()] = value.decode()
            if len(ext) > EXT_MAX:
                raise BadFrame(f"the binary header has more than {EXT_MAX} fields")
        name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
        return Frame(code, opaque, ext, b"", flag, remark.decode(), name, version, BINARY)
    except (struct.error, UnicodeDecodeError) as error:
        raise BadFrame(f"the binary header does not parse: {error}") from error


def _sized(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    size = int.from_bytes(data[at:at + width], "big", signed=True)
    begin = at + width
    if begin > len(data) or not 0 <= size <= len(data) - begin:
        raise BadFrame(f"a length of {size} at {at} reaches over the header's end, {len(data)}")
    return data[begin:begin + size], begin + size


def fitting(answer: Frame) -> Frame:
    """The answer, its remark cut where no header has room for it; in place of one whose body no frame has room for, one that
    says so. A client would cut the connection off."""
    answer.remark = answer.remark[:REMARK_MAX]
    if len(answer.body) <= BODY_MAX:
        return answer
    return Frame(SYSTEM_ERROR, answer.opaque, {}, b"", answer.flag, f"the answer has {len(answer.body)} bytes, and a frame has "
                 f"room for {BODY_MAX}: ask for less at a time", answer.language, answer.version, answer.serialize)


def encode(frame: Frame) -> bytes:
    """The bytes of a frame, in its serialize type."""
    if frame.serialize == BINARY:
        language = LANGUAGES.index(frame.language) if frame.language in LANGUAGES else LANGUAGES.index("OTHER")
        ext = b"".join(struct.pack(f">h{len(k)}si{len(v)}s", len(k), k, len(v), v)
                       for k, v in ((key.encode(), value.encode()) for key, value in frame.ext.items()))
        remark = frame.remark.encode()
        header = struct.pack(f">hbhiii{len(remark)}si", frame.code, language, frame.version, frame.opaque, frame.flag,
                             len(remark), remark, len(ext)) + ext
    else:
        said = {"code": frame.code, "flag": frame.flag, "language": frame.language, "opaque": frame.opaque,
                "serializeTypeCurrentRPC": "JSON", "version": frame.version,
                **({"extFields": frame.ext} if frame.ext else {}), **({"remark": frame.remark} if frame.remark else {})}
        header = json.dumps(said, separators=(",", ":")).encode()
    return struct.pack(">ii", 4 + len(header) + len(frame.body), frame.serialize << 24 | len(header)) + header + frame.body

"""JSON lines exactly as the Java side of tools/interop writes them, and a record as such a line. Pure functions, any thread."""
import ipaddress
import zlib
from typing import Any


class Line:
    """A JSON object whose fields stand in the order they were added."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def add(self, **fields: object) -> None:
        self._fields.update(fields)

    def text(self) -> str:
        return "{" + ",".join(f"{quote(name)}:{_value(value)}" for name, value in self._fields.items()) + "}"


def quote(text: str) -> str:
    r"""A JSON string: everything outside printable ASCII as \uXXXX of its UTF-16 units, without the short escapes."""
    parts = []
    for c in text:
        if c in '"\\':
            parts.append("\\" + c)
        elif " " <= c <= "~":
            parts.append(c)
        else:
            units = c.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
    return '"' + "".join(parts) + '"'


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Line):
        return value.text()
    if isinstance(value, list):
        return "[" + ",".join(_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote(k)}:{_value(v)}" for k, v in value.items()) + "}"
    return str(int(value))              # type: ignore[call-overload]


def java_order(text: str) -> bytes:
    """Sort key that orders text as Java does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def record_line(line: Line, message: Any) -> Line:
    """Adds all fields of a record, in the form of the golden lines."""
    raw = bytes(message.raw)
    body = bytes(message.body)
    properties = message.properties
    born_ip, born_port = _host(message.born_host)
    store_ip, store_port = _host(message.store_host)
    line.add(
        phyOffset=message.offset, size=message.size, magic=message.magic & 0xFFFFFFFF, msgId=message.msg_id,
        topic=message.topic, queueId=message.queue_id, queueOffset=message.queue_offset, flag=message.flag,
        sysFlag=message.sys_flag, bornTs=message.born_timestamp, bornIp=born_ip, bornPort=born_port,
        storeTs=message.store_timestamp, storeIp=store_ip, storePort=store_port, reconsume=message.reconsume_times,
        prepOffset=message.prepared_transaction_offset, bodyCrc=message.body_crc,
        bodyCrcOk=zlib.crc32(body) & 0x7FFFFFFF == message.body_crc, bodyLen=len(body), body=body.hex(),
        props={name: properties[name] for name in sorted(properties, key=java_order)},
        propsHex=bytes(message.properties_raw).hex(), recordCrc32=zlib.crc32(raw))
    return line


def _host(text: str) -> tuple[str, int]:
    """"ip:port" -> the address as Java prints it (IPv6: eight groups, none left out), and the port."""
    address, _, port = text.rpartition(":")
    if address.startswith("["):
        groups = ipaddress.IPv6Address(address[1:-1]).exploded.split(":")
        address = ":".join(f"{int(g, 16):x}" for g in groups)
    return address, int(port)

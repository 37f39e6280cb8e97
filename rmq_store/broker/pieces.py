"""Tables of topics, groups and offsets as slaves and tools ask for them (21, 201, 43): whole, or in pieces, as a frame may have
no room for all of one.

Topics and groups come in pieces as in RocketMQ 5.5 (GetAllTopicConfigRequestHeader): the request says `topicSeq` and
`maxTopicNum` (`groupSeq`, `maxGroupNum`), and the `dataVersion` of the piece before. The piece has the rows from that number
on, by name, or from the first one on if the table has changed, and says how many rows there are. RocketMQ has no pieces for
offsets: there the request says `maxOffsetNum` and `offsetAfter`, the last name that it has, and the answer `offsetMore`.
"""
import bisect
import json
from typing import Any

from rmq_store.broker.codes import Code
from rmq_store.broker.request import Refused, Request, body_of
from rmq_store.remoting.frame import BODY_MAX, Frame

__all__ = ["named_table", "offset_table"]

PIECE_BYTES = 8 << 20       # of a piece, more or less
_VERSION = ("counter", "stateVersion", "timestamp")


def named_table(request: Request, content: dict[str, Any], key: str, unit: str) -> Frame:
    """unit: "Topic" or "Group"."""
    most = request.integer(f"max{unit}Num", 0)
    table = content[key]
    if most <= 0:
        return _whole(request, content, f"{unit.lower()}Seq and max{unit}Num")
    begin = request.integer(f"{unit.lower()}Seq", 0)
    if not _same(request.ext.get("dataVersion"), content.get("dataVersion")):
        begin = 0
    names = sorted(table)[max(begin, 0):max(begin, 0) + most]
    return request.answer(ext={f"total{unit}Num": str(len(table))}, body=body_of(content | {key: _some(table, names)}))


def offset_table(request: Request, content: dict[str, Any]) -> Frame:
    most, table = request.integer("maxOffsetNum", 0), content["offsetTable"]
    if most <= 0:
        return _whole(request, content, "maxOffsetNum")
    names = sorted(table)
    at = bisect.bisect_right(names, request.ext.get("offsetAfter", ""))
    some = _some(table, names[at:at + most])
    return request.answer(ext={"offsetMore": "true" if at + len(some) < len(names) else "false"},
                          body=body_of(content | {"offsetTable": some}))


def _same(said: str | None, version: Any) -> bool:
    try:
        told = json.loads(said or "null")
    except ValueError:
        return False
    return (isinstance(told, dict) and isinstance(version, dict)
            and all(told.get(name, 0) == version.get(name, 0) for name in _VERSION))


def _some(table: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """So many of the rows as a piece has room for, and one at least."""
    found: dict[str, Any] = {}
    size = 0
    for name in names:
        size += len(name) + len(body_of(table[name]))
        if found and size > PIECE_BYTES:
            break
        found[name] = table[name]
    return found


def _whole(request: Request, content: dict[str, Any], how: str) -> Frame:
    body = body_of(content)
    if len(body) > BODY_MAX:
        raise Refused(Code.SYSTEM_ERROR, f"the table has {len(body)} bytes, and a frame has room for {BODY_MAX}: ask for it in "
                      f"pieces, by {how}")
    return request.answer(body=body)

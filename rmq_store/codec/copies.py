"""The properties of a record that the store makes of another one, in a form that always fits: a retry, a dead letter, a
committed message. Pure functions, any thread.

A put checks that a message fits, but not that its copies do: these have more properties, a checksum may have been switched on
since, and the bytes of a peer may be none that an encoder writes. Here the bytes of the message stay as they are.
"""
from collections.abc import Collection, Mapping

from rmq_store.codec._layout import CRC_PROPERTY_SIZE, PROPERTIES_SIZE_MAX
from rmq_store.codec.layout import Compat

__all__ = ["copied_properties"]

# What a message can do without, in the order in which it goes; of the rest, the longest goes first.
_LEAST = ("TRACE_ON", "MSG_REGION", "CLUSTER", "TRAN_MSG", "__transactionId__", "REAL_QID", "REAL_TOPIC",
          "INNER_MULTI_QUEUE_OFFSET")


def copied_properties(raw: bytes, leave_out: Collection[str], added: Mapping[str, str], compat: Compat,
                      crc: bool) -> tuple[bytes, list[str]]:
    """(properties, names that they lack). Those of `raw` but for `leave_out`, and behind them as many of `added` as there is
    room for, in their order. crc: the record gets a checksum, for which a message that was put without one may lack room."""
    own = {name.encode() for name in (*leave_out, *added, "__CRC32#")}
    kept = [piece for piece in raw.split(b"\x02") if piece and piece.partition(b"\x01")[0] not in own]
    lacks = []
    # A separator stands behind each; the last one needs none where no checksum follows.
    left = (PROPERTIES_SIZE_MAX - CRC_PROPERTY_SIZE if crc else PROPERTIES_SIZE_MAX + 1) - sum(len(piece) + 1 for piece in kept)
    least = [name.encode() for name in _LEAST]
    for piece in sorted(kept, key=lambda piece: _rank(piece, least)) if left < 0 else ():
        kept.remove(piece)
        lacks.append(piece.partition(b"\x01")[0].decode(errors="replace"))
        left += len(piece) + 1
        if left >= 0:
            break
    for name, value in added.items():
        piece = f"{name}\x01{value}".encode(errors="replace")
        if len(piece) + 1 <= left:
            kept.append(piece)
            left -= len(piece) + 1
        else:
            lacks.append(name)
    return b"\x02".join(kept) + (b"\x02" if kept and compat == "5.x" and left > 0 else b""), lacks


def _rank(piece: bytes, least: list[bytes]) -> tuple[int, int]:
    name = piece.partition(b"\x01")[0]
    return (least.index(name), 0) if name in least else (len(least), -len(piece))

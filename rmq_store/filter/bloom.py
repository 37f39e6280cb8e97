"""The bloom filter over consumer groups that a bit map of the queue extension is (RocketMQ: BloomFilter, BloomFilterData).

A message's bit map has the bits of each group whose SQL92 filter the message fulfils. Where one of a group's bits is 0, the
message does not fulfil the group's filter; where all are 1, it may. Pure functions, control plane.
"""
import math

from rmq_store.fields import Fields

__all__ = ["BloomFilter", "murmur3"]

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


class BloomFilter(Fields):
    """error_pct: from 1 to 99, the share of messages that may seem to fulfil a filter which they do not; groups: 1 or more, the
    number of groups of one topic for which that holds. hashes: how many bits a group has; bits: the length of a bit map."""

    __slots__ = ("error_pct", "groups")

    def __init__(self, error_pct: int, groups: int) -> None:
        if not 1 <= error_pct < 100 or groups < 1:
            raise ValueError(f"error_pct is {error_pct}, groups is {groups}: give 1 to 99, and 1 or more")
        self.error_pct, self.groups = error_pct, groups

    def __hash__(self) -> int:      # type: ignore[override]
        return hash((self.error_pct, self.groups))

    @property
    def hashes(self) -> int:
        return math.ceil(math.log(self.error_pct / 100) / math.log(0.5))

    @property
    def bits(self) -> int:
        # In Java's order of operations: the last digit decides what is rounded up.
        rate = self.error_pct / 100
        exact = self.groups * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2))
        return 8 * math.ceil(math.ceil(exact) / 8)

    def positions(self, text: str) -> tuple[int, ...]:
        """The bits of `text`: bit p is 1 << p % 8 of byte p // 8."""
        first = murmur3(text.encode("utf-8", "replace"))
        low, high = _signed(first), _signed(first >> 32)
        found = []
        for i in range(1, self.hashes + 1):
            combined = _signed(low + i * high)
            found.append((~combined if combined < 0 else combined) % self.bits)
        return tuple(found)

    def group_positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits of a consumer group in the bit maps of a topic's messages."""
        return self.positions(f"{group}#{topic}")


def _signed(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> (64 - by)) & _MASK


def _mixed(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _MASK
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33


def murmur3(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, as Guava's murmur3_128 and its asLong give them."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _rotated(int.from_bytes(data[at:at + 8], "little") * _C1 & _MASK, 31) * _C2 & _MASK
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotated(int.from_bytes(data[at + 8:at + 16], "little") * _C2 & _MASK, 33) * _C1 & _MASK
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    h1 ^= _rotated(int.from_bytes(data[whole:whole + 8], "little") * _C1 & _MASK, 31) * _C2 & _MASK
    h2 ^= _rotated(int.from_bytes(data[whole + 8:], "little") * _C2 & _MASK, 33) * _C1 & _MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_mixed(h1) + _mixed(h2)) & _MASK

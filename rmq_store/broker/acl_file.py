"""plain_acl.yml: accounts, their permissions, and addresses that need no signature (RocketMQ: PlainPermissionManager,
PlainAccessResource, RemoteAddressStrategyFactory).

`read_rules` makes immutable Rules of one file, or of all .yml and .yaml files below a directory. A file that is wrong raises
ConfigError, and nothing of it counts. YAML is read by PyYAML, an extra: pip install 'rmq_store[acl]'.
"""
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmq_store.broker.codes import DENY, PUB, RETRY, SUB, WAITING
from rmq_store.errors import ConfigError
from rmq_store.fields import NamedTuple

__all__ = ["DENY", "PUB", "SUB", "Account", "Address", "Rules", "acl_files", "read_rules"]

PERMS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": DENY}
KEY_MIN = 7             # characters of an accessKey and a secretKey
SIZE_MAX = 4 << 20      # bytes of a file
FILES_MAX = 1000
FIELDS = frozenset(("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm",
                    "topicPerms", "groupPerms"))
ALL = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
Address = Callable[[str], bool]


class Account(NamedTuple):
    """perms: topic, or %RETRY%group, -> bits; None where the file names none."""

    access_key: str
    secret_key: bytes
    admin: bool
    white: Address
    topic_perm: int
    group_perm: int
    perms: Mapping[str, int] | None

    def allows(self, resource: str, needed: int) -> bool:
        """resource: a topic, or %RETRY%group. Topics in which messages of all others wait are for administrators."""
        if resource in WAITING and not self.admin:
            return False
        owned = (self.perms or {}).get(resource)
        if owned is None:
            owned = self.group_perm if resource.startswith(RETRY) else self.topic_perm
        return not owned & DENY and bool(needed & owned)

    def may(self, resource: str, needed: int) -> bool:
        """As `allows`; an administrator without permissions of his own has them all."""
        return (self.admin and self.perms is None) or self.allows(resource, needed)


class Rules(NamedTuple):
    white: tuple[Address, ...]
    accounts: Mapping[str, Account]


def acl_files(path: str) -> dict[str, bytes]:
    """The files that `path` names, with their bytes. Raises ConfigError, OSError."""
    names = [path]
    if os.path.isdir(path):
        names = sorted(os.path.join(folder, name) for folder, _, found in os.walk(path) for name in found
                       if name.endswith((".yml", ".yaml")))[:FILES_MAX + 1]
        if not names or len(names) > FILES_MAX:
            raise ConfigError(f"{path} has {'no' if not names else f'more than {FILES_MAX}'} .yml and .yaml files: put the "
                              "accounts into plain_acl.yml there")
    found = {}
    for name in names:
        with open(name, "rb") as f:
            found[name] = f.read(SIZE_MAX + 1)
        if len(found[name]) > SIZE_MAX:
            raise ConfigError(f"{name} has more than {SIZE_MAX} bytes: no ACL file is that long")
    return found


def read_rules(files: Mapping[str, bytes]) -> Rules:
    """Raises ConfigError, also where PyYAML is missing."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ConfigError("aclEnable needs PyYAML to read plain_acl.yml: pip install 'rmq_store[acl]'") from error
    white: list[Address] = []
    accounts: dict[str, Account] = {}
    for name, data in files.items():
        try:
            content = yaml.safe_load(data)
            if content is None:
                raise ConfigError("the file is empty")
            if not isinstance(content, dict):
                raise ConfigError("the file is no table with globalWhiteRemoteAddresses and accounts")
            white += [_address(text) for text in _list(content, "globalWhiteRemoteAddresses")]
            for entry in _list(content, "accounts"):
                account = _account(entry)
                if account.access_key in accounts:
                    raise ConfigError(f"accessKey {account.access_key!r} stands in the files twice")
                accounts[account.access_key] = account
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ConfigError(f"{name} is no YAML: {error}") from None
    return Rules(tuple(white), accounts)


def _list(table: Mapping[str, Any], name: str) -> list[Any]:
    found = table.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ConfigError(f"{name} is no list")
    return found


def _account(entry: Any) -> Account:
    if not isinstance(entry, dict):
        raise ConfigError("an entry of accounts is no table")
    unknown = entry.keys() - FIELDS
    if unknown:             # what it forbids would be allowed
        raise ConfigError(f"an entry of accounts has {min(map(str, unknown))!r:.60}: known are {', '.join(sorted(FIELDS))}")
    access, secret = (entry.get(name) for name in ("accessKey", "secretKey"))
    for name, value in (("accessKey", access), ("secretKey", secret)):
        if not isinstance(value, str) or len(value) < KEY_MIN:
            # not the secret itself: this text goes into logs
            raise ConfigError(f"{name} of account {access!r:.60} has to be text of {KEY_MIN} characters or more; put digits "
                              "in quotes")
    assert isinstance(access, str) and isinstance(secret, str)
    admin = entry.get("admin", False)
    if not isinstance(admin, bool):
        raise ConfigError(f"admin of account {access!r} is {admin!r}: give true or false")
    perms: dict[str, int] = {}
    for field, prefix in (("topicPerms", ""), ("groupPerms", RETRY)):
        for row in _list(entry, field):
            name, equals, perm = str(row).partition("=")
            if not equals or not name.strip():
                raise ConfigError(f"{field} of account {access!r} has {row!r:.200}: give NAME=PUB|SUB, NAME=PUB, NAME=SUB or "
                                  "NAME=DENY")
            perms[prefix + name.strip()] = _perm(perm)
    named = entry.get("topicPerms") or entry.get("groupPerms")
    access.encode()         # as the network thread takes it
    return Account(access, secret.encode(), admin, _address(entry.get("whiteRemoteAddress")),
                   _perm(entry.get("defaultTopicPerm")), _perm(entry.get("defaultGroupPerm")), perms if named else None)


def _perm(text: Any) -> int:
    """What is no permission denies, as in RocketMQ."""
    return PERMS.get(str(text).strip(), DENY)


# ---- addresses

def _address(text: Any) -> Address:
    """As RocketMQ writes them: one address; several with commas, or with {1,2} at the end; parts that are * or 1-20."""
    written = "" if text is None else str(text).strip()
    if not written:
        return lambda peer: False
    if written in ALL:
        return lambda peer: True
    try:
        ranges = [_ranges(one) for one in _each(written)]
    except ValueError as error:
        raise ConfigError(f"address {written!r:.200}: {error}") from None

    def matches(peer: str) -> bool:
        parts = _parts(peer)
        return any(len(parts) == len(wanted) and all(low <= part <= high for part, (low, high) in
                                                     zip(parts, wanted, strict=True)) for wanted in ranges)

    return matches


def _each(written: str) -> Iterable[str]:
    several = re.fullmatch(r"(.*[.:])\{([^{}]*)\}", written)
    if several:
        return [several[1] + last.strip() for last in several[2].split(",")]
    return [one.strip() for one in written.split(",")]


def _ranges(text: str) -> list[tuple[int, int]]:
    """(lowest, highest) of each part. Raises ValueError."""
    base, most, mark, count = (16, 0xFFFF, ":", 8) if ":" in text else (10, 255, ".", 4)
    parts = text.split(mark)
    if mark == ":" and "::" in text:
        left, _, right = text.partition("::")
        before, after = [p for p in left.split(":") if p], [p for p in right.split(":") if p]
        parts = [*before, *["0"] * (count - len(before) - len(after)), *after]
    if len(parts) != count:
        raise ValueError(f"it has {len(parts)} parts, not {count}")
    found = []
    for part in parts:
        low, minus, high = part.strip().partition("-")
        pair = (0, most) if part.strip() == "*" else (int(low, base), int(high if minus else low, base))
        if not 0 <= pair[0] <= pair[1] <= most:
            raise ValueError(f"part {part!r} is not within 0 to {most:x}" if base == 16 else
                             f"part {part!r} is not within 0 to {most}")
        found.append(pair)
    return found


def _parts(peer: str) -> list[int]:
    """The numbers of an address; none where it is no address."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return []
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return [int.from_bytes(address.packed[i:i + 2], "big") for i in range(0, 16, 2)]
        address = address.ipv4_mapped
    return list(address.packed)

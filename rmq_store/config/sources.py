"""Where values come from besides keywords: profiles, configuration files, the environment. load.py checks what they say.

Called once per open, by the opening thread. A profile and our configuration file are the same TOML: options at the top level,
`description` for people, and in a configuration file `profile`. Any other configuration file is a broker.conf.
"""
import os
from collections.abc import Mapping
from typing import Any

from rmq_store.config.properties import parse
from rmq_store.errors import ConfigError
from rmq_store.fields import NamedTuple

__all__ = ["ENVIRONMENT", "Source", "environment", "profile", "profile_names", "read_config", "user_profiles"]

ENVIRONMENT = "RMQ_STORE_"
# RMQ_STORE_ names that are no options: these two choose sources, the others are read when the package is built.
_CHOICES = ("PROFILE", "CONFIG")
_BUILD = ("DEBUG", "WITHOUT_URING")
_BUILT_IN = os.path.join(os.path.dirname(__file__), "profiles")     # a package with extensions is never in an archive


class Source(NamedTuple):
    """One place values come from. origin: how `config show` names it. entries: name as written there -> value."""

    origin: str
    entries: Mapping[str, object]
    description: str = ""
    profile: str | None = None


def profile_names() -> list[str]:
    """The built-in profiles, sorted."""
    return sorted(name.removesuffix(".toml") for name in os.listdir(_BUILT_IN) if name.endswith(".toml"))


def user_profiles() -> str:
    """The directory of the user's own profiles."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "rmq_store", "profiles")


def user_profile_names() -> list[str]:
    try:
        names = os.listdir(user_profiles())
    except OSError:
        return []
    return sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml"))


def profile(name: object) -> Source:
    """A built-in profile, the user's of that name, or a file where `name` is a path (has a slash, or ends with .toml).
    Raises ConfigError."""
    try:
        text = os.fsdecode(name)        # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(f"profile is {name!r}: expected a name or a path") from None
    origin = f"profile {text}"
    if "/" in text or text.endswith(".toml"):
        return _toml(_read(text, "profile"), text, origin)
    if text in profile_names():
        return _toml(_read(os.path.join(_BUILT_IN, f"{text}.toml"), "profile"), text, origin)
    own = os.path.join(user_profiles(), f"{text}.toml")
    if os.path.isfile(own):
        return _toml(_read(own, "profile"), own, origin)
    known = ", ".join([*profile_names(), *user_profile_names()])
    raise ConfigError(f"profile {text!r} is unknown: there are {known}; put yours into {user_profiles()}, or give a path")


def read_config(path: object) -> Source:
    """A configuration file: TOML where its name ends with .toml, else a broker.conf. Raises ConfigError, OSError."""
    try:
        text = os.fsdecode(path)        # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(f"config is {path!r}: expected a path") from None
    data = _read(text, "config")
    origin = f"file {text}"
    if text.endswith(".toml"):
        return _toml(data, text, origin)
    try:
        return Source(origin, parse(data))
    except ValueError as error:
        raise ConfigError(f"config {text} is not a properties file: {error}") from None


def environment(variables: Mapping[str, str]) -> tuple[Source, dict[str, str]]:
    """RMQ_STORE_<OPTION> as a source, and the choices of RMQ_STORE_PROFILE and RMQ_STORE_CONFIG. Empty ones do not count."""
    entries: dict[str, object] = {}
    choices: dict[str, str] = {}
    for variable, value in variables.items():
        if not variable.startswith(ENVIRONMENT) or not value:
            continue
        name = variable.removeprefix(ENVIRONMENT)
        if name in _CHOICES:
            choices[name.lower()] = value
        elif name not in _BUILD:
            entries[name.lower()] = value
    return Source("environment", entries), choices


def _read(path: str, what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise ConfigError(f"{what} {path} does not exist") from None
    except IsADirectoryError:
        raise ConfigError(f"{what} {path} is a directory: expected a file") from None


def _toml(data: bytes, path: str, origin: str) -> Source:
    import tomllib  # here, as a store without a profile or a file has no use for it

    try:
        entries: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None
    description, named = entries.pop("description", ""), entries.pop("profile", None)
    tables = [k for k, v in entries.items() if isinstance(v, dict)]
    if tables:
        raise ConfigError(f"{path} has a table [{tables[0]}]: write the options at the top level")
    if named is not None and origin.startswith("profile"):
        raise ConfigError(f"{path} is a profile and names the profile {named!r}: write the options of both into one file")
    return Source(origin, entries, str(description), named)

"""The options of a store that is only looked at: what files do not tell is as somebody asked, or the default. Any thread."""
from typing import Any

from rmq_store.config.load import Options, resolve
from rmq_store.log.recovery.places import Places, infer_sizes, need_store, root_of

__all__ = ["chosen_options", "told_since"]


def chosen_options(path: Any, options: dict[str, Any]) -> tuple[str, Options]:
    """The root and the options of a store that is only looked at, sizes taken from its files. Raises ConfigError, OSError."""
    root = root_of(path)
    keywords = dict(options)
    chosen = resolve(keywords.pop("profile", None), keywords | {"readonly": True}, root, config=keywords.pop("config", None))
    need_store(Places(root, chosen))
    return root, chosen.inferred(infer_sizes(root, chosen))


def told_since(root: str, asked: dict[str, Any], before: Options) -> Options | None:
    """`before` with the sizes that files tell now and none told then: a writer made the first of their kind since. None: there
    are no such sizes. Raises ConfigError, OSError."""
    now = chosen_options(root, asked)[1]
    found = {name: now[name] for name in now if now.origin(name) == "files" != before.origin(name)}
    return before.inferred(found) if found else None

"""What other packages offer by an entry point: put hooks and dispatchers. Control plane, any thread."""
from typing import Any

from rmq_store.errors import ConfigError

__all__ = ["offered"]


def offered(option: str, name: str) -> Any:
    """The object that a package offers as `name` in the entry point group rmq_store.<option>. Raises ConfigError."""
    import importlib.metadata  # who names none does not pay for it

    group = f"rmq_store.{option}"
    found = importlib.metadata.entry_points(group=group, name=name)
    if not found:
        known = sorted({point.name for point in importlib.metadata.entry_points(group=group)})
        raise ConfigError(f"option {option} names {name!r}, and no installed package offers it: install one with this entry "
                          f"point in the group {group}, or leave the name out"
                          + (f"; installed are {', '.join(known)}" if known else ""))
    try:
        return next(iter(found)).load()
    except Exception as error:      # of whatever kind: it is another package's code
        raise ConfigError(f"option {option} names {name!r}, and its package raised {type(error).__name__}: {error}: ask its "
                          "makers, or leave the name out") from error

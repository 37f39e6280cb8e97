"""Stores that real brokers left with work in them: half messages, timers, light queues, bit maps, compaction logs, two
directories. stores/README.md says what each is; `make` (needs Java) writes them again.

A case is NAME.tar.gz with the directory under `store/`, and NAME.json: `version`, `options` (upstream's names) and what the
broker itself said of it.
"""
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

STORES = Path(__file__).parent / "stores"


def cases(prefix: str) -> list[str]:
    return sorted(p.stem for p in STORES.glob(f"{prefix}-*.json"))


def unpack(name: str, into: Path) -> tuple[Path, dict[str, Any]]:
    """The store, a fresh copy, and its case. Two directories: the log's are `commitlog` and `commitlog2` in it."""
    with tarfile.open(STORES / f"{name}.tar.gz") as archive:
        # Python 3.11 before 3.11.4 has no filters and behaves as "fully_trusted".
        archive.extractall(into, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return into / "store", json.loads((STORES / f"{name}.json").read_text())


def _pack(name: str, store: Path, case: dict[str, Any]) -> None:
    STORES.mkdir(exist_ok=True)
    with tarfile.open(STORES / f"{name}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.add(store, "store", filter=lambda info: None if info.name.endswith("/lock") else _nobody(info))
    (STORES / f"{name}.json").write_text(json.dumps(case, sort_keys=True) + "\n")


def _nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def make(directory: Path) -> None:
    """Writes all cases anew, in `directory`, which is empty. Needs Java, Maven and a network: tools/interop."""
    from tests.interop import jvm
    from tests.takeover import makers

    for maker in makers.BROKERS:
        for name, store, case in maker(directory):
            _pack(name, store, case)
    for version in jvm.VERSIONS:
        java = jvm.JavaStore(version, directory / f"{version}.log")
        java.wait_ready()
        try:
            makers_of: Callable[..., Any]
            for makers_of in makers.STORES:
                for name, store, case in makers_of(java, directory):
                    _pack(name, store, case)
        finally:
            java.kill()


if __name__ == "__main__":
    make(Path(sys.argv[1]))

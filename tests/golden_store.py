"""Golden cases: stores the real RocketMQ wrote, and what it read from them. What each holds: golden/README.md."""
import gzip
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# RMQ_GOLDEN points at another set of the same form.
GOLDEN = Path(os.environ.get("RMQ_GOLDEN") or Path(__file__).parent / "golden")


def cases(prefix: str = "") -> list[str]:
    """Names of all cases that begin with `prefix`: v4-, v5-crash-, ..."""
    return sorted(p.parent.name for p in GOLDEN.glob(f"{prefix}*/case.json"))


def sampled(names: list[str]) -> list[Any]:
    """For tests that say the same of many stores: each third in CI, all of them in the slow form."""
    return [name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.slow) for i, name in enumerate(names)]


@dataclass(frozen=True)
class GoldenCase:
    """One case, its store unpacked at `store`, a fresh copy that a test may open and change."""

    name: str
    store: Path

    @property
    def case(self) -> dict[str, Any]:
        return json.loads((GOLDEN / self.name / "case.json").read_text())

    @property
    def config(self) -> dict[str, str]:
        """The upstream options that differ from the defaults, file sizes among them."""
        return self.case["config"]

    @property
    def compat(self) -> str:
        return "4.9" if self.name.startswith("v4-") else "5.x"

    def expected(self) -> Iterator[dict[str, Any]]:
        return self._lines("expected.jsonl.gz")

    def inputs(self) -> Iterator[dict[str, Any]]:
        return self._lines("inputs.jsonl.gz")

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        with gzip.open(GOLDEN / self.name / name, "rt", encoding="utf-8") as f:
            yield from map(json.loads, f)


def unpack(name: str, into: Path) -> GoldenCase:
    """Unpacks the store under `into`. Modification times keep their fractions: 4.9's search by time depends on them."""
    with tarfile.open(GOLDEN / name / "store.tar.gz") as archive:
        # Python 3.11 before 3.11.4 has no filters and behaves as "fully_trusted".
        archive.extractall(into, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return GoldenCase(name, into / "store")

"""Stores of ours with manifests, damaged and repaired: the real RocketMQ reads them to the end, and as we do."""
from pathlib import Path

import rmq_store
from rmq_store import MessageStore
from rmq_store.services.integrity.repair import repair
from tests.interop import content, jvm, ours
from tests.interop.test_java_reads_ours import compare


def test_reads_a_repaired_store(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    root, case = tmp_path / "store", content.CASES["rolled"]
    written = ours.write(root, "rolled")
    rmq_store.scrub(root, bytes_per_s=None, make_manifests=True, **case.files, **case.settings)
    assert len(list((root / ".manifest").iterdir())) > 2
    lost = written[20]
    log = root / "commitlog" / f"{lost // 65536 * 65536:020d}"
    with log.open("r+b") as f:
        f.seek(lost % 65536 + 40)
        f.write(bytes(200))
    result = repair(root, dry_run=False, open_store=MessageStore.open, **case.files, **case.settings)
    assert [s.kind for s in result.steps] == ["bridge", "rebuild"] and result.left == []
    for found in compare(java, root, case).values():
        assert sorted(found) == written
        assert [offset for offset, m in found.items() if "DAMAGED" in m["props"]] == [lost]

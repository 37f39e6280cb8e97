"""tools/circles.py finds a circle however its files import one another."""
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("circles", ROOT / "tools" / "circles.py")
circles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(circles)


def found(root, files):
    for name, text in files.items():
        (root / "rmq_store" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "rmq_store" / name).write_text(text)
    return circles.circles(circles.imports(root))


@pytest.mark.parametrize("back", [
    "from rmq_store.a import x\n", "def f():\n    from rmq_store.a import x\n", "import rmq_store.a\n", "from . import a\n",
    "if TYPE_CHECKING:\n    from rmq_store.a import x\n", "from rmq_store.a import (\n    x,\n    y,\n)\n",
    "from rmq_store import a\n"])
def test_a_circle_of_two(tmp_path, back):
    assert found(tmp_path, {"a.py": "from rmq_store.b import y\n", "b.py": back}) == [["rmq_store.a", "rmq_store.b"]]


def test_a_declaration_counts_as_its_module(tmp_path):
    files = {"_a.pyx": "from rmq_store._b cimport y\n", "_b.pyx": "# B.\n", "_b.pxd": "from rmq_store._c cimport z\n",
             "_c.pxd": "from rmq_store._a cimport x\n"}
    assert found(tmp_path, files) == [["rmq_store._a", "rmq_store._b", "rmq_store._c"]]


def test_a_line_is_none(tmp_path):
    files = {"a.py": "from rmq_store.b import y\n", "b.py": "from rmq_store.c import z\n", "c.py": "import os\n"}
    assert found(tmp_path, files) == []

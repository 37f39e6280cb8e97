"""Modules are compiled at the same time: a source that two of them compiled would be one object file with two writers."""
import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
LIST = """
import json, setup
print(json.dumps([s for module in setup.modules() for s in module.sources]))
"""


def test_no_source_is_compiled_by_two_modules():
    done = subprocess.run([sys.executable, "-c", LIST], cwd=ROOT, capture_output=True, text=True, check=True)
    users = collections.Counter(json.loads(done.stdout))
    assert len(users) > 80 and [source for source, n in users.items() if n > 1] == []

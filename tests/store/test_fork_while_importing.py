"""A fork while another thread imports a module that a call of the store loads late. In the child nobody releases the lock of
that module, so a call has to say whose the store is before it imports."""
import subprocess
import sys

import pytest

SCRIPT = """
import importlib, os, signal, sys, threading, warnings
from rmq_store import MessageStore, errors

NAME, CALL, ROOT = sys.argv[1:]
begun, going_on = threading.Event(), threading.Event()

def hold():         # as an import does while it runs the module's code
    lock = importlib._bootstrap._get_module_lock(NAME)
    lock.acquire()
    begun.set()
    going_on.wait()
    lock.release()

assert NAME not in sys.modules
store = MessageStore.open(ROOT)
importer = threading.Thread(target=hold)
importer.start()
begun.wait()
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    signal.alarm(10)
    try:
        eval(CALL)
    except errors.ForkedProcess:
        os._exit(0)
    finally:
        os._exit(1)
going_on.set()
importer.join()
store.close()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("name", "call"), [
    ("rmq_store.services.integrity.scrubbing", "store.scrub()"),
    ("rmq_store.services.backup.source", "store.backup(ROOT + '-backups')"),
    ("rmq_store.access.waiting.loops", "store._loop_hub(None)"),
])
def test_the_child_is_told_before_anything_is_imported(tmp_path, name, call):
    done = subprocess.run([sys.executable, "-c", SCRIPT, name, call, str(tmp_path / "s")], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 0, done.stderr

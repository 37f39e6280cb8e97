"""Put hooks of other packages: by entry point, and C functions in a capsule (rmq_put_hook.h)."""
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.access.writer import hooks
from rmq_store.status import PutStatus

HEADER = Path(hooks.__file__).parent
SMALL = {"segment_size_bytes": 1 << 18, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
SOURCE = r"""
#include "rmq_put_hook.h"
#include <stdio.h>
#include <string.h>

static char changed[64];
static int calls;

/* The body says what to do: a digit is a status; "+" adds a property; "L" and "N" give sizes that cannot be. */
static int before_put(void *state, rmq_put_message *m)
{
    if (state != &calls || m->topic_size != 1 || m->topic[0] != 'T' || m->queue_id != 2)
        return 9;
    char what = m->body_size ? (char)m->body[0] : 0;
    if (what >= '0' && what <= '9') {
        snprintf(m->reason, sizeof m->reason, "asked %d, batch %d", ++calls, m->batch);
        return what - '0';
    }
    if (what == 'X')
        return 99;
    if (what == 'F') {
        memset(m->reason, 'r', sizeof m->reason);       /* without a NUL */
        return 4;
    }
    if (what == '+') {
        m->changed_size = (int32_t)snprintf(changed, sizeof changed, "%.*sc\001d\002", (int)m->properties_size, m->properties);
        m->changed = changed;
    }
    if (what == 'L' || what == 'N') {
        m->changed = changed;
        m->changed_size = what == 'L' ? 32768 : -1;
    }
    return 0;
}

rmq_put_hook good = { RMQ_PUT_HOOK_VERSION, 0, &calls, before_put };
rmq_put_hook newer = { RMQ_PUT_HOOK_VERSION + 1, 0, &calls, before_put };
rmq_put_hook empty = { RMQ_PUT_HOOK_VERSION, 0, &calls, NULL };
"""
MODULE = """
import ctypes
lib = ctypes.CDLL({library!r})
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

def capsule(name, called=b"rmq_store.put_hook"):
    return new(ctypes.addressof(ctypes.c_char.in_dll(lib, name)), called, None)

good, newer, empty, other = capsule("good"), capsule("newer"), capsule("empty"), capsule("good", b"another name")
nothing = 5

def quota(message):
    if len(message.body) > 3:
        return rmq_store.status.PutStatus.SERVICE_NOT_AVAILABLE, "too long"
import rmq_store.status
"""
NAMES = ("good", "newer", "empty", "other", "nothing", "quota")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    root = tmp_path_factory.mktemp("hook")
    (root / "h.c").write_text(SOURCE)
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HEADER}", str(root / "h.c"),
                    "-o", str(root / "h.so")], check=True)
    return root / "h.so"


@pytest.fixture
def offered(library, tmp_path, monkeypatch):
    """The package that offers them is installed: its module."""
    copy = library.with_name(f"{tmp_path.name}.so")
    shutil.copy(library, copy)
    site = tmp_path / "site"
    (site / "hookers-1.0.dist-info").mkdir(parents=True)
    (site / "hookers.py").write_text(MODULE.format(library=str(copy)))
    (site / "hookers-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: hookers\nVersion: 1.0\n")
    (site / "hookers-1.0.dist-info" / "entry_points.txt").write_text(
        "[rmq_store.put_hooks]\n" + "".join(f"{name} = hookers:{name}\n" for name in NAMES) + "gone = no_such_module:x\n")
    monkeypatch.syspath_prepend(str(site))
    sys.modules.pop("hookers", None)
    import hookers
    yield hookers
    sys.modules.pop("hookers", None)


@pytest.fixture
def store(offered, tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        made.add_put_hook(offered.good)
        yield made


@pytest.mark.parametrize("status", [s for s in PutStatus if 4 <= s <= 9])
def test_a_function_in_c_refuses(store, status):
    with pytest.raises(errors.PutRefused, match="asked 1, batch 0") as refused:
        store.put("T", b"%d" % status, queue_id=2)
    assert refused.value.status is status and store.max_log_offset == 0


def test_a_function_in_c_changes_properties(store):
    store.put("T", b"+", queue_id=2, tags="a", properties={"p": "q"})
    store.put("T", b"no", queue_id=2)
    store.put_many("T", [b"+", b"-"], queue_id=2)
    assert [m.properties for m in store.scan()] == [{"p": "q", "TAGS": "a", "c": "d"}, {}, {"c": "d"}, {}]


@pytest.mark.parametrize(("body", "said"), [
    (b"X", "it returned 99"), (b"L", "32768 bytes, the limit is 32767"), (b"N", "-1 bytes"), (b"1", "not a PutStatus of")])
def test_what_a_function_in_c_may_not_say(store, body, said):
    with pytest.raises(errors.PutRefused, match=said) as refused:
        store.put("T", body, queue_id=2)
    assert refused.value.status is PutStatus.UNKNOWN_ERROR and store.max_log_offset == 0


def test_a_reason_without_an_end(store):
    with pytest.raises(errors.PutRefused) as refused:
        store.put("T", b"F", queue_id=2)
    assert refused.value.reason == "r" * 255


@pytest.mark.parametrize(("name", "said"), [("newer", "it is of version 2"), ("empty", "it lacks before_put"),
                                            ("other", "a PyCapsule named rmq_store.put_hook")])
def test_capsules_that_are_no_hooks(offered, tmp_path, name, said):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        with pytest.raises(errors.ArgumentIllegal, match=said):
            store.add_put_hook(getattr(offered, name))
        assert store.put_hooks == []


def test_the_option_names_entry_points(offered, tmp_path):
    with MessageStore.open(tmp_path / "s", put_hooks="quota, good", **SMALL) as store:
        assert store.put_hooks == ["quota", "good"] and store.options.put_hooks == ("quota", "good")
        with pytest.raises(errors.PutRefused, match="put hook quota refused the message: too long"):
            store.put("T", b"long", queue_id=2)
        store.put("T", b"no", queue_id=2)
    with MessageStore.open(tmp_path / "s", put_hooks="quota", readonly=True, **SMALL) as store:
        assert store.put_hooks == []


@pytest.mark.parametrize(("name", "error", "said"), [
    ("absent", errors.ConfigError, "no installed package offers it.*installed are empty, gone, good"),
    ("gone", errors.ConfigError, "its package raised ModuleNotFoundError"),
    ("nothing", errors.ArgumentIllegal, "give a function")])
def test_a_name_that_leads_to_no_hook(offered, tmp_path, name, error, said):
    with pytest.raises(error, match=said):
        MessageStore.open(tmp_path / "s", put_hooks=name, **SMALL)
    MessageStore.open(tmp_path / "s", **SMALL).close()          # no lock is left behind


def test_names_are_checked(tmp_path):
    for bad in ("a,,b", "a,a", 5):
        with pytest.raises(errors.ConfigError, match="put_hooks"):
            MessageStore.open(tmp_path / "s", put_hooks=bad)


def test_the_command_asks_them(offered, tmp_path, rmqstore, monkeypatch):
    text = tmp_path / "lines"
    text.write_text("ok\nlonger\n")
    small = [x for name, value in SMALL.items() for x in ("-o", f"{name}={value}")]
    code, _, err = rmqstore("put", tmp_path / "s", "-t", "T", "-o", "put_hooks=quota", *small, text)
    assert code not in (0, None) and "put hook quota refused the message: too long" in err and "Traceback" not in err
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as store:
        assert [bytes(m.body) for m in store.scan()] == [b"ok"]

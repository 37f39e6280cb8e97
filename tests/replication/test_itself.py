"""Slaves that are led to themselves: by the kernel, at a port where nobody listens, and by an address of their own machine."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = """
import fcntl, logging, socket, struct, sys
from pathlib import Path

with socket.socket() as s:                                                  # the loopback is down in a new network
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 1, b""))           # SIOCSIFFLAGS, IFF_UP
try:
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40002 40003")
except OSError as error:
    print(error)
    sys.exit(77)
with socket.socket() as s:
    s.connect(("127.0.0.1", 40002))                                         # so it does here, and nothing below is by chance
    assert s.getsockname() == s.getpeername()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

from tests.replication.pairs import caught_up, fill, master, slave
from tests.soon import until

said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("rmq_store").addHandler(handler)
with slave(Path(sys.argv[1]) / "s", "127.0.0.1:40002") as s:
    until(lambda: said, 20_000)
    assert s.replication().state == "waits" and "Connection refused" in said[0], said
    with master(Path(sys.argv[1]) / "m", ha_listen="127.0.0.1:40002") as m:
        fill(m, 5)
        caught_up(s, m)
"""


# Two addresses of one network: whoever connects to the second one does it from the first.
ADDRESSES = """
import fcntl, logging, socket, struct, sys
from pathlib import Path

with socket.socket() as s:
    for name, address in (b"lo:1", "10.9.0.5"), (b"lo:2", "10.9.0.6"):
        fcntl.ioctl(s, 0x8916, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address)))    # SIOCSIFADDR
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 1, b""))           # SIOCSIFFLAGS, IFF_UP
with socket.create_server(("0.0.0.0", 0)) as s, socket.create_connection(("10.9.0.6", s.getsockname()[1])) as c:
    assert (c.getsockname()[0], c.getpeername()[0]) == ("10.9.0.5", "10.9.0.6")

from rmq_store import MessageStore
from tests.replication.pairs import SMALL
from tests.soon import until

said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("rmq_store").addHandler(handler)
for n, address in enumerate(("10.9.0.5", "10.9.0.6", "127.0.0.1", "127.0.1.1")):
    said.clear()
    port = 41000 + n
    with MessageStore.open(Path(sys.argv[1]) / str(n), **SMALL, role="slave", ha_listen=f"0.0.0.0:{port}",
                           ha_master=f"{address}:{port}") as s:
        until(lambda: any("listens for slaves itself" in text for text in said), 20_000)
        assert s.replication().state == "refused", (address, s.replication())
"""

# Of another machine, where bind takes any address.
ANOTHER = """
import os, subprocess, sys
from pathlib import Path

def run(command):
    subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)

child = subprocess.Popen(["unshare", "-n", "sleep", "600"])
try:
    try:
        while os.readlink(f"/proc/{child.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            pass
        run(f"ip link add near type veth peer name far netns {child.pid}")
        for where, name, address in ("", "near", "10.9.0.1"), (f"nsenter -t {child.pid} -n ", "far", "10.9.0.2"):
            run(f"{where}ip address add {address}/24 dev {name}")
            run(f"{where}ip link set {name} up")
        Path("/proc/sys/net/ipv4/ip_nonlocal_bind").write_text("1")
    except (OSError, subprocess.CalledProcessError) as error:
        print(error)
        sys.exit(77)

    from tests.replication.pairs import slave
    from tests.soon import until

    MASTER = "import sys; from pathlib import Path; from tests.replication.pairs import fill, master\\n"
    MASTER += "with master(Path(sys.argv[1]), ha_listen='10.9.0.2:41000') as m: fill(m, 5); print('open', flush=True); input()"
    command = ["nsenter", "-t", str(child.pid), "-n", sys.executable, "-P", "-c", MASTER, sys.argv[1] + "/m"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as master:
        assert master.stdout.readline() == b"open\\n"
        with slave(Path(sys.argv[1]) / "s", "10.9.0.2:41000", ha_listen="0.0.0.0:41000") as s:
            until(lambda: s.replication().state == "follows" and s.max_log_offset > 0, 20_000)
finally:
    child.kill()
    child.wait()
"""


@pytest.mark.root
@pytest.mark.parametrize("program", [ALONE, ADDRESSES, ANOTHER], ids=["master is down", "addresses", "another machine"])
def test_in_a_network_of_its_own(tmp_path: Path, program: str) -> None:
    if shutil.which("unshare") is None or (program is ANOTHER and None in map(shutil.which, ("ip", "nsenter"))):
        pytest.skip("no unshare, ip or nsenter")
    done = subprocess.run(["unshare", "-n", sys.executable, "-P", "-c", program, str(tmp_path)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr

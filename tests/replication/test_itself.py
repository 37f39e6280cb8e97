"""A port at which nobody listens, among those that the kernel gives to whoever connects: a socket may be led to itself."""
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


@pytest.mark.root
def test_a_slave_whose_master_is_down(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    done = subprocess.run(["unshare", "-n", sys.executable, "-P", "-c", ALONE, str(tmp_path)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr

"""A fork while other threads make their first calls: the child goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading, time
from tensorlang.ops import random
keys = [random.key(n) for n in range(9)]
threads = [threading.Thread(target=random.normal, args=(k, (64,))) for k in keys[1:]]
for thread in threads:
    thread.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if child == 0:
    random.normal(keys[0], (64,))
    os._exit(0)
for thread in threads:
    thread.join()
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(sys, "getrefcount"), reason="needs CPython's fork")
@pytest.mark.parametrize("delay", ["0", "0.02", "0.1"])
def test_a_child_of_a_busy_process_draws(delay: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, delay]
    done = subprocess.run(command, timeout=120, check=False)
    assert done.returncode == 0

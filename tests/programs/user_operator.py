"""A user's operator whose schedule can go wrong: y = 2 x in many ways."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

# every way to compute it is a function of the IR, by the name of its knob
WAYS = {
    "slow": """
        t = alloc(u32[{n}])
        for r in range(50):
            for i in range({n}):
                t[i] = x[i] + cast(u32, r)
        for i in range({n}):
            y[i] = x[i] * u32(2)
    """,
    "fast": "for i in range({n}):\n    y[i] = x[i] * u32(2)",
    "segfault": """
        for i in range({n}):
            if {perhaps}:
                y[i + 35184372088832] = x[i]
    """,
    "forever": "while {n} >= 0:\n    y[0] = x[0]",
    "wrong": "for i in range({n}):\n    y[i] = x[i] * u32(3)",
    "wrong_once": """
        for i in range({n}):
            y[i] = select(i == {n} - 2, u32(0), x[i] * u32(2))
    """,
    "unwritten": "for i in range({n} - 1):\n    y[i] = x[i] * u32(2)",
    "past_the_end": """
        for i in range({n} + 1):
            if {perhaps}:
                y[i] = x[min(i, {n} - 1)] * u32(2)
    """,
    "before_the_start": """
        for i in range({n} + 1):
            if {perhaps}:
                y[i - 1] = x[max(i - 1, 0)] * u32(2)
    """,
    "reads_past_the_end": """
        for i in range({n}):
            if {perhaps}:
                y[i] = x[i] * u32(2) + {odd}
    """,
    "reads_before": """
        for i in range({n}):
            if {perhaps}:
                y[i] = x[i] * u32(2) + {even}
    """,
    "surely_past_the_end": "for i in range({n}):\n    y[i] = x[i + 1] * u32(2)",
    "too_much_stack": """
        t = alloc(u32[200000], scope="private")
        for i in range({n}):
            t[i] = x[i] * u32(2)
            y[i] = t[i]
    """,
    "does_not_build": """
        for i in bound({n}, "block.x"):
            y[i] = x[i] * u32(2)
    """,
}
AFTER = "((x[i + 1] * x[i + 1] + x[i + 1]) & u32(1))"  # 0, which no compiler sees
BEFORE = AFTER.replace("+ 1]", "- 1]")

PERHAPS = "x[0] >= u32(0)"  # always, which the verifier does not look for

DAEMON = """
if os.fork() == 0:
    os.setsid()
    command = [sys.executable, "-c", "import time; time.sleep(600)", MARK]
    os.fork() == 0 and os.execve(command[0], command, {})
    os._exit(0)
os.wait()
"""

# what schedule functions do that leave the definition as it is, if they ever end
HOSTILE = {
    "endless": "while True: pass",
    "sleeps": "time.sleep(1e6)",
    "eats": "held = []\nwhile True: held.append(bytes(1 << 28))",
    "exits": "os._exit(3)",
    "aborts": "os.abort()",
    "kills_itself": "os.kill(os.getpid(), 9)",
    "closes": "os.closerange(3, 64)",
    "falls_silent": "os.closerange(3, 64)\ntime.sleep(1e6)",
    "falls_asleep": "os.closerange(3, 64)\nos.kill(os.getpid(), 19)",
    "prints": "print({'answer': 1}, flush=True)",
    "forks": "os.fork()",
    "daemon": DAEMON,
    "lingers": f"{DAEMON}time.sleep(1e6)",
    "leaves": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
}

MODULE = '''
"""A user's operator."""

import os
import subprocess
import sys
import time

from tensorlang.ir.definitions.frontend import compute
from tensorlang.ir.text.parser import parse
from tensorlang.ops import operator
from tensorlang.scheduling import schedule

MARK = {mark!r}
HOSTILE = {hostile!r}
WAYS = {ways!r}


@operator("{name}.double", family="{name}")
def double(x):
    n = int(x.shape[0])  # its schedules are written for one size
    return compute((n,), lambda i: x[i] * 2, name="y")


@schedule("{name}")
def schedule_double(s, knobs):
    n = s.function.params[0].buffer.shape[0].value
    way = knobs.choice("way", {names!r})
    if way in HOSTILE:
        exec(HOSTILE[way])
    if way == "raises":
        raise ZeroDivisionError("a mistake\\nof the user's")
    if way == "illegal":
        s.vectorize("no_such_loop")
    if way not in WAYS:
        return
    x, y = (param.buffer.name for param in s.function.params)
    head = f"def {{s.function.name}}(x: u32[{{n}}], y: Out[u32[{{n}}]]):\\n"
    body = WAYS[way].replace("{{n}}", str(n))
    s.function = parse(head + body)
'''


def _indented(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text).strip(), "    ") + "\n"


def write(folder: Path, name: str, ways: Sequence[str]) -> str:
    """Write a module with the operator, whose knob has these ways; its id."""
    code = {w: t.replace("{odd}", AFTER) for w, t in WAYS.items()}
    code = {w: t.replace("{perhaps}", PERHAPS) for w, t in code.items()}
    code = {w: _indented(t.replace("{even}", BEFORE)) for w, t in code.items()}
    text = MODULE.format(
        ways=code, name=name, names=list(ways), hostile=HOSTILE, mark=str(folder)
    )
    (folder / f"{name}.py").write_text(text)
    return f"{name}:double"

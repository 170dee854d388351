"""What is predicted at first calls, with kernels in the cache, loads no schedules."""

import subprocess
import sys


def test_predicting_a_convolution_imports_no_schedules():
    code = """
import sys
from tensorlang import targets
from tensorlang.ops.nn import convolution_layouts as layouts

shapes = [(1, 8, 9, 9), (16, 8, 3, 3), (16,)]
print(min(layouts.cycles("nn.conv2d", {}, shapes, "float32", targets.host())) > 0)
print([name for name in sys.modules if name.startswith("tensorlang.scheduling")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:2] == ["True", "[]"], done.stderr

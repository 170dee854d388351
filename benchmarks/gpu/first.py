"""`python -m benchmarks.gpu.first KIND`: one tiny kernel of a kind, against the CPU.

Each is a process of its own, so that a kernel that fails or hangs costs itself alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

Case = Callable[[str], Any]  # from a target to a result in host memory


def _normal(*shape: int, dtype: str = "float32") -> Any:
    import ml_dtypes
    import numpy as np

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return np.random.default_rng(1).normal(size=shape).astype(kind)


def _threefry(target: str) -> Any:
    from tensorlang.ops import random

    return random.bits(random.key(7), (4096,), target=target)


def _dropout(target: str) -> Any:
    from tensorlang.ops import nn, random

    return nn.dropout(_normal(4096), 0.25, key=random.key(3), target=target)


def _elementwise(target: str) -> Any:
    from tensorlang.ops import nn

    return nn.gelu(_normal(4097), target=target)


def _rows(target: str) -> Any:
    from tensorlang.ops import nn

    return nn.softmax(_normal(8, 1000), target=target)


def _sum(target: str) -> Any:
    from tensorlang.ops import math

    return math.sum(_normal(300, 70), axis=0, target=target)


def _scan(target: str) -> Any:
    from tensorlang.ops import math

    return math.cumsum(_normal(3000), target=target)


def _sort(target: str) -> Any:
    from tensorlang.ops import math

    return math.sort(_normal(3000), target=target)


def _update(target: str) -> Any:
    import numpy as np

    from tensorlang.ops import optim

    held = [np.abs(_normal(1000)) for _ in range(4)]
    optim.adam(*held, step=2, lr=1e-2, target=target)
    return held[0]


def _faults(target: str) -> Any:
    """A check of data that fails, and a call after it."""
    import numpy as np

    from tensorlang.errors import KernelError
    from tensorlang.ops import nn

    table, indices = _normal(50, 16), np.array([3, 99], np.int32)
    try:
        nn.embedding(indices, table, target=target)
    except KernelError:
        return nn.embedding(indices % 50, table, target=target)
    raise ArithmeticError("an index out of range was not reported")


def _dense(dtype: str) -> Case:
    def call(target: str) -> Any:
        from tensorlang.ops import nn

        x, w = (_normal(256, 128, dtype=dtype) for _ in range(2))
        return nn.dense(x, w, target=target)

    return call


def _batch(target: str) -> Any:
    from tensorlang.ops import math

    a, b = (_normal(3, 64, 64, dtype="bfloat16") for _ in range(2))
    return math.matmul(a, b, target=target)


def _gradient(target: str) -> Any:
    """Products that read their operands transposed."""
    import numpy as np

    from tensorlang.ops import nn

    given = (_normal(*shape, dtype="bfloat16") for shape in ((256, 64), (256, 128)))
    found = nn.dense_grad(*given, _normal(64, 128, dtype="bfloat16"), target=target)
    return np.concatenate([np.asarray(each).ravel() for each in found[:2]])


def _convolution(target: str) -> Any:
    from tensorlang.ops import nn

    x, w = _normal(1, 7, 7, 64, dtype="bfloat16"), _normal(64, 64, 3, 3)
    w = (w / 24).astype(x.dtype)
    return nn.conv2d(x, w, padding=1, layout="NHWC", target=target)


# kind -> what is computed, and the error allowed relative to the largest element
KINDS: dict[str, tuple[Case, float]] = {
    "threefry": (_threefry, 0.0),
    "elementwise": (_elementwise, 1e-6),
    "rows": (_rows, 1e-5),
    "dense f32": (_dense("float32"), 1e-5),
    "dense bf16": (_dense("bfloat16"), 2e-2),
    "gradient bf16": (_gradient, 2e-2),
    "batch bf16": (_batch, 2e-2),
    "sum": (_sum, 1e-5),
    "update": (_update, 1e-6),
    "dropout": (_dropout, 0.0),
    "convolution": (_convolution, 2e-2),
    "scan": (_scan, 1e-5),
    "sort": (_sort, 0.0),
    "faults": (_faults, 0.0),
}


def checked(kind: str, target: str) -> dict[str, Any]:
    """Compute on the target and on the CPU; the error and how long the calls took.

    Raises:
        ArithmeticError: the results differ by more than is allowed.
    """
    import numpy as np

    call, allowed = KINDS[kind]
    begun = time.perf_counter()
    here = np.asarray(call(target)).astype(np.float64)
    first = time.perf_counter() - begun
    again = np.asarray(call(target)).astype(np.float64)
    right = np.asarray(call("llvm")).astype(np.float64)
    size = float(np.abs(right).max()) or 1.0
    error = max(float(np.abs(each - right).max()) / size for each in (here, again))
    if not error <= allowed:
        raise ArithmeticError(f"{kind}: an error of {error:.3g}, {allowed:g} allowed")
    return {"kind": kind, "error": error, "allowed": allowed, "first call": first}


def main() -> None:
    """Check one kind, and print the result as the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.first")
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--target", default="cuda")
    given = parser.parse_args()
    try:
        print(json.dumps(checked(given.kind, given.target)))
    except Exception as problem:  # noqa: BLE001 - reported in a line
        sys.exit(f"{type(problem).__name__}: {' '.join(str(problem).split())[:400]}")


if __name__ == "__main__":
    main()

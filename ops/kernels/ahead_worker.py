"""A process that builds kernels for `tensorlang.ops.kernels.ahead`."""

from __future__ import annotations

import pickle
from contextlib import suppress

from tensorlang.errors import TensorlangError
from tensorlang.ops.kernels import kept
from tensorlang.ops.registry import find
from tensorlang.runtime.building import file_kernel
from tensorlang.runtime.processes import serve


def _answer(request: bytes) -> bytes:
    id, *rest = pickle.loads(request)  # noqa: S301 - of the other process
    workload, target, constants = rest
    with suppress(TensorlangError):
        for key, make in kept.all_requests(find(id), workload, target, constants):
            file_kernel(key, make, target)
    return b""


if __name__ == "__main__":
    serve(_answer)

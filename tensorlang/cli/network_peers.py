"""What a network is compared with: onnxruntime on its file, PyTorch on its export.

PyTorch reads no ONNX files: `net.pt2` beside `net.onnx` is the same network as
`torch.export.save` writes it, and takes the same inputs in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from tensorlang import lazy
from tensorlang.errors import ArgumentError
from tensorlang.tuner.peers.comparison import INSTALL

with lazy.modules(__name__):
    import onnxruntime
    import torch

Arrays: TypeAlias = Mapping[str, np.ndarray]
Results: TypeAlias = tuple[np.ndarray, ...]
Run: TypeAlias = Callable[[], Results]
# loads a file, for inputs and a number of threads
Peer: TypeAlias = Callable[[Path, Arrays, int], Run]


def _onnxruntime(path: Path, given: Arrays, threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)
    return lambda: tuple(session.run(None, dict(given)))


def _torch(path: Path, given: Arrays, threads: int, *, compiled: bool) -> Run:
    file = path.with_suffix(".pt2")
    if not file.exists():
        raise ArgumentError(
            f"PyTorch reads no ONNX files, and there is no {file}: "
            f"torch.export.save(torch.export.export(module, inputs), {file.name!r}) "
            "writes it"
        )
    torch.set_num_threads(threads)
    module = torch.export.load(file).module()
    called = torch.compile(module) if compiled else module
    inputs = [torch.from_numpy(array) for array in given.values()]

    def run() -> Results:
        with torch.no_grad():
            made = called(*inputs)
        several = made if isinstance(made, (tuple, list)) else (made,)
        return tuple(each.numpy() for each in several)

    return run


NETWORK_PEERS: Final[dict[str, Peer]] = {
    "onnxruntime": _onnxruntime,
    "torch": partial(_torch, compiled=False),
    "torch.compile": partial(_torch, compiled=True),
}


def network_peer(name: str) -> Peer:
    """What loads a network for a peer whose package is installed.

    Raises:
        ArgumentError: there is no such peer, or it is not installed.
    """
    if name not in NETWORK_PEERS:
        raise ArgumentError(
            f"--vs {name}: a model is compared with {', '.join(NETWORK_PEERS)}"
        )
    if find_spec(name.partition(".")[0]) is None:
        raise ArgumentError(f"{name} is not installed; {INSTALL} brings it")
    return NETWORK_PEERS[name]

"""onnxruntime in a process of its own, which a broken model may end.

As a script it answers requests on standard input: pairs of a model and its inputs, each
pickled behind its length.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from threading import Timer
from typing import Any, BinaryIO

SECONDS = 20


class Reference:
    """A process that runs models; another one where it has died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(self, model: bytes, inputs: Sequence[Any]) -> list[Any] | str:
        """The results of a model, or why there are none."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        timer = Timer(SECONDS, process.kill)
        timer.start()
        try:
            _send(process.stdin, (model, inputs))
            found: list[Any] | str = _receive(process.stdout)
        except (OSError, EOFError):
            process.kill()
            process.wait()
            return "it died"
        finally:
            timer.cancel()
        return found


def _send(to: BinaryIO, what: Any) -> None:
    data = pickle.dumps(what)
    to.write(len(data).to_bytes(8, "little") + data)
    to.flush()


def _receive(source: BinaryIO) -> Any:
    size = source.read(8)
    if len(size) < 8:
        raise EOFError
    return pickle.loads(source.read(int.from_bytes(size, "little")))


def _answer() -> None:
    """Run what is asked for until nobody asks."""
    import resource

    import onnxruntime

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    while True:
        try:
            model, inputs = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            made = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
            names = [each.name for each in made.get_inputs()]
            found: Any = made.run(None, dict(zip(names, inputs, strict=True)))
        except Exception as error:
            found = f"{error}"[:400]
        _send(sys.stdout.buffer, found)


if __name__ == "__main__":
    _answer()

"""Exported libraries, called by a C program, against the same calls from Python.

Each round runs the exported `main.c` and as many calls in Python, in turn; the fastest
of each are compared. Both get the same arrays, and their results have to be equal.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from tensorlang.export import Exported, export_operator
from tensorlang.graph import TensorSpec
from tensorlang.layers import Conv2D, Dense, Flatten, MaxPool2D, Model, Sequential
from tensorlang.ops import find, nn, random
from tensorlang.tuner.measurement.rounds import paired_ratio

HEAD: Final = """\
Exported libraries

The exported `main.c` against the same call in Python: the fastest of 20 calls of each,
in turn, and the median of the rounds' ratios, with its interval; wanted: at least 1.0x.
Results are the same bits. Sizes are those of the shared library, with the pool of
threads."""
_CALLS: Final = 20  # as `main.c` makes
_REST: Final = 0.05  # seconds, in which threads of the calls before go to sleep
_EXAMPLES: Final = Path(__file__).parents[1] / "examples"
_GENERATOR: Final = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Work:
    """An exported library, its inputs in the order of its arguments, and the call."""

    made: Exported
    inputs: tuple[Array, ...]
    call: Callable[[], Array]


def rows(rounds: int, only: str, threads: int) -> Iterator[dict[str, Any]]:
    """A row for each work."""
    for title, make in _WORKS.items():
        if only in title:
            print(title, file=sys.stderr)
            with TemporaryDirectory() as folder:
                work = make(Path(folder, "library"))
                yield {"work": title} | _row(work, rounds, threads)


def _row(work: Work, rounds: int, threads: int) -> dict[str, Any]:
    main, folder = work.made.folder / "timed", work.made.folder
    sources = ["main.c", f"lib{work.made.name}.a"]
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O2", *sources, "-lm", "-pthread", "-o", main]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603 - of this program
    result = work.call()
    arrays = (*work.inputs, np.zeros_like(result))
    files = [folder / f"{n}.bin" for n in range(len(arrays))]
    c, python = [], []
    for _ in range(rounds):
        for file, array in zip(files, arrays, strict=True):
            array.tofile(file)
        run = [main, str(threads), *files]
        time.sleep(_REST)
        said = subprocess.run(run, check=True, capture_output=True, text=True)  # noqa: S603
        found = re.search(r": (\S+) ms with", said.stdout)
        assert found is not None
        c.append(float(found[1]) / 1e3)
        time.sleep(_REST)
        python.append(min(_seconds(work.call) for _ in range(_CALLS)))
        if files[-1].read_bytes() != result.tobytes():
            raise AssertionError(f"{work.made.name}: other bits than in Python")
    ratio = paired_ratio(python, c)
    return {
        "seconds": {"c": float(np.median(c)), "python": float(np.median(python))},
        "ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
        "bytes": work.made.libraries[1].stat().st_size,
    }


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _normal(*shape: int) -> Array:
    return _GENERATOR.standard_normal(shape, dtype=np.float32)


def _operator(
    name: str, call: Callable[..., object], *inputs: Array, folder: Path
) -> Work:
    """An operator; `call` takes its inputs and `out`."""
    op = find(name)
    shapes = [each.shape for each in inputs]
    made = export_operator(op, (op.workload(*shapes),), folder)
    out = np.empty_like(call(*inputs, out=None))
    return Work(made, inputs, partial(call, *inputs, out=out))


def _dense(folder: Path) -> Work:
    x, w = _normal(64, 784), _normal(512, 784)
    return _operator("nn.dense", nn.dense, x, w, folder=folder)


def _convolution(folder: Path) -> Work:
    x, w = _normal(4, 64, 56, 56), _normal(64, 64, 3, 3)
    return _operator("nn.conv2d", nn.conv2d, x, w, folder=folder)


def _dropout(folder: Path) -> Work:
    op, key, x = find("nn.dropout"), random.key(0), _normal(1 << 20)
    made = export_operator(op, (op.workload(x.shape),), folder, values={"rate": 0.5})
    out = np.empty_like(x)

    def call() -> Array:
        return nn.dropout(x, 0.5, key=key.clone(), out=out)

    return Work(made, (x, key.words), call)


def _network(model: Model, x: Array, folder: Path) -> Work:
    return Work(model.export(folder, batch=len(x)), (x,), partial(model, x))


def _lenet(folder: Path) -> Work:
    layers = (Conv2D(6, 5, "relu", padding="same"), MaxPool2D(2), Conv2D(16, 5, "relu"))
    layers += (
        MaxPool2D(2),
        Flatten(),
        Dense(120, "relu"),
        Dense(84, "relu"),
        Dense(10),
    )
    spec = TensorSpec(("batch", 1, 28, 28))
    model = Model(Sequential(*layers)).compile(spec, train=False, key=random.key(1))
    return _network(model, _normal(64, 1, 28, 28), folder)


def _block(folder: Path) -> Work:
    spec = util.spec_from_file_location("block", _EXAMPLES / "transformer_block.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    taken = TensorSpec(("batch", module.LENGTH), "int64")
    model = Model(module.Reader()).compile(taken, train=False, key=random.key(4))
    return _network(model, module.batch(random.key(6), 16)[0], folder)


_WORKS: Final[dict[str, Callable[[Path], Work]]] = {
    "dense f32, 64x784 to 512": _dense,
    "conv 3x3, 4x64x56x56 to 64": _convolution,
    "dropout f32, 2^20": _dropout,
    "LeNet, 64 images": _lenet,
    "transformer block, 16 texts": _block,
}


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """The measurements as Markdown."""
    yield "| work | Python, µs | C, µs | Python over C | library, kB |"
    yield "| --- | --- | --- | --- | --- |"
    for row in found["rows"]:
        ratio, seconds = row["ratio"], row["seconds"]
        yield (
            f"| {row['work']} | {seconds['python'] * 1e6:.1f} | "
            f"{seconds['c'] * 1e6:.1f} | {ratio['median']:.2f}x "
            f"[{ratio['low']:.2f}, {ratio['high']:.2f}] | {row['bytes'] / 1e3:.0f} |"
        )

"""ONNX files, broken or changed: refused by a typed error, or right by onnxruntime."""

from __future__ import annotations

import base64
import os
import signal
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from tensorlang_test_programs import onnx_suite
from tensorlang_test_programs.corruption import corrupted
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.fuzzing import Fuzzer
from tensorlang_test_programs.onnx_deviations import understood
from tensorlang_test_programs.onnx_mutations import CHANGES, version
from tensorlang_test_programs.onnx_reference import Reference

from tensorlang.errors import TensorlangError
from tensorlang.onnx import Program, load
from tensorlang.onnx.files import nodes_of
from tensorlang.onnx.reading import READERS

LARGEST = 1 << 22  # bytes of an array, so that a case is a matter of a second
SECONDS = 20
# relative and absolute, by the size of an element
_TOLERANCE = {1: (0.05, 0.05), 2: (0.05, 0.05), 4: (2e-3, 2e-4), 8: (1e-5, 1e-6)}


@dataclass(frozen=True, slots=True)
class Case:
    """A file, and the seed of what it is called with."""

    data: bytes
    seed: int


class DifferentError(AssertionError):
    """Other numbers than onnxruntime's."""


class TooLongError(Exception):
    """A case that takes longer than is patience for."""


@cache
def _bases() -> list[bytes]:
    """Models of the suite whose operators are read, and those below; by size.

    Those of the folder `MODELS` of the environment are taken as often as eight others.
    """
    made = {}
    for case in onnx_suite.cases(slow=False):
        model = onnx.load_from_string(case.model)
        if all((node.domain, node.op_type) in READERS for node in model.graph.node):
            for freeze in (False, True):
                for inputs, _ in case.sets[:1] if freeze else ():
                    model, _ = onnx_suite.frozen(model, inputs)
                made[model.SerializeToString()] = None
    own = Path(os.environ.get("MODELS", os.devnull)).glob("*.onnx")
    exported = [path.read_bytes() for path in own]
    return sorted([*made, *map(_text, TEXTS), *exported * 8], key=len)


def _text(text: str) -> bytes:
    head = '<ir_version: 8, opset_import: ["" : 18]>\n'
    model = onnx.parser.parse_model(head + text)
    for n, value in enumerate(model.graph.input[1:]):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = np.random.default_rng(n).normal(size=shape).astype(np.float32)
        tensor = onnx.numpy_helper.from_array(array, value.name)
        model.graph.initializer.append(tensor)
    del model.graph.input[1:]
    return model.SerializeToString()


# windows, shapes that are computed, branches and loops; weights behind the first input
TEXTS = (
    """m (float[2, 3, 7] x) => (float[a, b, c] y) {
      y = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 1],
                   ceil_mode = 1, dilations = [1]> (x) }""",
    """m (float[1, 2, 6, 5] x) => (float[a, b, c, d] y) {
      y = AveragePool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1],
                       ceil_mode = 1, count_include_pad = 1> (x) }""",
    """m (float[1, 2, 6, 5] x) => (float[a, b, c, d] y) {
      y = AveragePool <kernel_shape = [3, 2], auto_pad = "SAME_LOWER"> (x) }""",
    """m (float[N, 2, 3] x) => (float[N, M] y) {
      s = Shape (x)  i = Constant <value = int64[1] {0}> ()  n = Gather (s, i)
      e = Constant <value = int64[1] {-1}> ()  t = Concat <axis = 0> (n, e)
      y = Reshape (x, t) }""",
    """m (float[N, 2] x) => (float[N, 2] y) {
      c = ReduceSum <keepdims = 0> (x)  z = Constant <value_float = 0.0> ()
      b = Greater (c, z)
      y = If (b) <then_branch = p () => (u) { u = Neg (x) },
                  else_branch = q () => (v) { v = Exp (x) }> }""",
    """m (float[N, 2] x) => (float[N, 2] y) {
      k = Constant <value = int64 {3}> ()  on = Constant <value = bool {1}> ()
      y = Loop (k, on, x) <body = b (int64 i, bool c, float[N, 2] h)
        => (bool d, float[N, 2] z) { z = Add (h, h)  d = Identity (c) }> }""",
    """m (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] b, float[4, 4] v)
        => (float[N, 4] y) {
      h = Conv <pads = [1, 1, 1, 1]> (x, w, b)  r = Relu (h)
      p = GlobalAveragePool (r)  f = Flatten (p)  g = Gemm (f, v)
      y = Softmax <axis = 1> (g) }""",
    """m (int64[N, T] ids, float[5, 6] table, float[6] s, float[6, 6] w)
        => (float[N, T, 6] y) {
      e = Gather (table, ids)  n = LayerNormalization (e, s)
      q = MatMul (n, w)  t = Transpose <perm = [0, 2, 1]> (n)
      a = MatMul (q, t)  p = Softmax (a)  z = MatMul (p, n)  y = Add (e, z) }""",
)


@st.composite
def _cases(draw: Draw) -> Case:
    model = onnx.load_from_string(draw(st.sampled_from(_bases())))
    nodes = model.graph.node
    if len(nodes) > 1 and draw(st.booleans()):
        _cut(model, draw(st.integers(0, len(nodes) - 1)))
    if draw(st.booleans()):
        version(draw, model)
    for _ in range(draw(st.sampled_from((1, 1, 0, 2, 1, 2, 3)))):
        draw(st.sampled_from(CHANGES))(draw, model)
    data = model.SerializeToString()
    if draw(st.integers(0, 9)) == 9:
        data = corrupted(draw, data)
    return Case(data, draw(st.integers(0, 99)))


def _cut(model: Any, at: int) -> None:
    """Keep what one node needs, whose results become those of the program."""
    known = onnx.shape_inference.infer_shapes(model).graph
    typed = {value.name: value for value in (*known.value_info, *known.output)}
    nodes, kept = list(model.graph.node), []
    needed = set(nodes[at].output)
    for node in reversed(nodes[: at + 1]):
        if needed & set(node.output):
            kept.insert(0, onnx.NodeProto.FromString(node.SerializeToString()))
            needed |= set(node.input)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    del model.graph.output[:]
    for name in filter(None, kept[-1].output):
        if name in typed:
            model.graph.output.append(typed[name])


@cache
def _reference() -> Reference:
    return Reference()


def check(case: Case) -> Iterable[str]:
    """Load it, run it, and compare with onnxruntime.

    Raises:
        DifferentError: the numbers are others.
    """
    try:
        with _patience():
            inputs, found = _run(case)
    except TensorlangError as error:
        return ["refused", f"refused: {type(error).__name__}"]
    except TooLongError:
        return ["took too long"]
    wanted = _reference()(case.data, inputs)
    if isinstance(wanted, str):
        return ["onnxruntime died" if wanted == "it died" else "onnxruntime refused"]
    kinds = _kinds(case.data)
    for n, (a, b) in enumerate(zip(found, map(np.asarray, wanted), strict=False)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            raise DifferentError(
                f"result {n}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            )
        wrong = _wrong(a, b)
        if wrong.any():
            ours, theirs = a[wrong], b[wrong]
            if why := understood(kinds, ours, theirs):
                return [f"differs: {why}"]
            raise DifferentError(f"result {n}: {ours[:8]}, not {theirs[:8]}")
    return ["the same"]


@contextmanager
def _patience() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _run(case: Case) -> tuple[list[Any], list[Any]]:
    """The inputs and the results of a file.

    Raises:
        TensorlangError: it is refused.
    """
    from tensorlang.graph.networks.network import Network

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(case.data)
        program = load(path, largest=LARGEST)
        network = Network(program, *program.specs)
    inputs = _inputs(program, case.seed)
    found = network(*inputs)
    return inputs, list(found) if isinstance(found, tuple) else [found]


def _inputs(program: Program, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    names = sorted({n for s in program.specs for d in s.shape for n in _open(d)})
    sizes = {name: 2 + n for n, name in enumerate(names)}
    return [_array(rng, spec.at(sizes)) for spec in program.specs]


def _open(extent: Any) -> set[str]:
    return extent.names if hasattr(extent, "names") else set()


def _array(rng: np.random.Generator, spec: Any) -> Any:
    if np.prod(np.maximum(spec.shape, 1), dtype=float) * spec.numpy.itemsize > LARGEST:
        raise TensorlangError("an input of so many elements is not tried")
    kind = spec.numpy.kind
    whole = rng.integers(-(kind == "i"), 3 - (kind == "b"), spec.shape)
    made = whole if kind in "iub" else rng.normal(0, 2, spec.shape)
    return made.astype(spec.numpy)


def _kinds(data: bytes) -> set[str]:
    graph = onnx.load_from_string(data).graph
    return {node.op_type for node in nodes_of(graph)}


def _wrong(a: Any, b: Any) -> Any:
    """Where numbers differ."""
    exact = a.dtype.kind in "iub"
    rtol, atol = (0, 0) if exact else _TOLERANCE[a.dtype.itemsize]
    return ~np.isclose(
        *(x if exact else x.astype(float) for x in (a, b)), rtol, atol, equal_nan=True
    )


_SHOWN = """
import numpy as np, onnxruntime
from tensorlang.onnx import load
from tensorlang.graph.networks.network import Network

open("/tmp/m.onnx", "wb").write(data)
program = load("/tmp/m.onnx", largest={largest})
names = {{n for s in program.specs for d in s.shape for n in getattr(d, "names", ())}}
sizes = {{name: 2 + n for n, name in enumerate(sorted(names))}}
rng, inputs = np.random.default_rng({seed}), []
for shape, t in ((s.at(sizes).shape, s.numpy) for s in program.specs):
    whole = rng.integers(-(t.kind == "i"), 3 - (t.kind == "b"), shape)
    inputs.append((whole if t.kind in "iub" else rng.normal(0, 2, shape)).astype(t))
print("here", Network(program, *program.specs)(*inputs))
session = onnxruntime.InferenceSession(data)
given = {{i.name: x for i, x in zip(session.get_inputs(), inputs)}}
print("there", session.run(None, given))
"""


def code(case: Case) -> str:
    """Python that loads the file and shows both results."""
    return _source(case.data) + _SHOWN.format(largest=LARGEST, seed=case.seed)


def _source(data: bytes) -> str:
    """The file as text, where that says all of it, and else its bytes."""
    try:
        model = onnx.load_from_string(data)
        text = onnx.printer.to_text(model)
        if (
            onnx.parser.parse_model(text).SerializeToString() == data
            and "'''" not in text
        ):
            parsed = f"onnx.parser.parse_model('''{text}''')"
            return f"import onnx\ndata = {parsed}.SerializeToString()\n"
        shown = "".join(f"# {line}\n" for line in text.splitlines()[:40])
    except Exception:
        shown = ""
    packed = base64.b85encode(zlib.compress(data)).decode()
    return f"""{shown}import base64, zlib
data = zlib.decompress(base64.b85decode({packed!r}))
"""


def make() -> Fuzzer:
    """The fuzzer of files."""
    return Fuzzer(_cases(), check, code, batch=2000, memory=6 << 30)

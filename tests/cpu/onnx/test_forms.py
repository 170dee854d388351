"""Branches and loops as ONNX has them: the same in onnxruntime, and when loaded."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import GraphError, TensorlangError
from tensorlang.layers import Dense, Dropout, Layer, Model
from tensorlang.ops import math, random

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("safetensors", reason="the extra onnx is not installed")

X = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
T = np.arange(5) % 3


class Forms(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Dense(8, "tanh"), Dense(3)
        self.drop = Dropout(0.5)

    def apply(self, x):
        return self.last(self.middle(self.first(x)))

    def middle(self, h):
        raise NotImplementedError


class Counted(Forms):
    def middle(self, h):
        return graph.loop(3, lambda _, c: math.add(math.sin(c), h), h)


class CountedByData(Forms):
    def middle(self, h):
        turns = math.argmax(math.sum(h, 0), 0)
        return graph.loop(turns, lambda _, c: math.add(math.sin(c), h), h)


class Asking(Forms):
    def middle(self, h):
        def small(c):
            return math.less(math.sum(math.square(c)), 1000.0)

        return graph.while_loop(small, lambda c: math.multiply(c, 1.5), h)


class Branching(Forms):
    def middle(self, h):
        above = math.greater(math.sum(h), 0.0)
        return graph.cond(
            above, lambda: self.drop(math.sin(h)), lambda: math.negative(h)
        )


class Drawing(Forms):
    def middle(self, h):
        return graph.loop(3, lambda _, c: self.drop(math.sin(self.first(c))), h)


class Kept(Forms):
    def middle(self, h):
        return graph.checkpoint(lambda c: self.drop(math.sin(c)))(h)


KINDS = [Counted, CountedByData, Asking, Branching, Drawing, Kept]


@pytest.mark.parametrize("kind", KINDS)
def test_saved_it_is_the_same(tmp_path, kind) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = Model(kind()).compile(("batch", 8), key=random.key(1))
    model.train_one_batch(X, T)
    path = tmp_path / "net.onnx"
    model.save(path)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options)
    again = Model.load(path)
    for x in (X, -X):  # both branches
        wanted = model(x)
        np.testing.assert_allclose(session.run(["y0"], {"x0": x})[0], wanted, atol=1e-5)
        np.testing.assert_array_equal(again(x), wanted)
    for _ in range(3):
        assert again.train_one_batch(X, T) == model.train_one_batch(X, T)


def test_a_gradient_of_ones_own_cannot_be_saved(tmp_path) -> None:
    @graph.function
    def halved(h):
        return math.multiply(h, 0.5)

    @halved.with_gradient
    def _(h, dy):
        del h
        return math.multiply(dy, 2.0)

    class Own(Forms):
        def middle(self, h):
            return halved(h)

    model = Model(Own()).compile(("batch", 8))
    with pytest.raises(GraphError, match=r"halved \(.*has a custom gradient, which"):
        model.save(tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def read(tmp_path, text):
    from onnx import parser

    made = parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>\n' + text)
    onnx.save(made, str(tmp_path / "net.onnx"))
    return Model.load(tmp_path / "net.onnx", train=False)


def test_a_strangers_loop_that_may_stop_early(tmp_path) -> None:
    model = read(
        tmp_path,
        """m (float[N, 2] x) => (float[N, 2] y) {
          most = Constant <value = int64 {7}> ()
          on = Constant <value = bool {1}> ()
          y = Loop (most, on, x) <body = b (int64 i, bool c, float[N, 2] h)
            => (bool d, float[N, 2] z) {
              z = Add(h, h)
              s = ReduceMax <keepdims = 0> (z)
              edge = Constant <value_float = 20.0> ()
              d = Less(s, edge)
          }>
        }""",
    )
    one = np.ones((3, 2), np.float32)
    assert (model(one) == 32).all()  # the first that is 20 or more
    assert (model(one / 1e9) == one / 1e9 * 2**7).all()  # no more than 7 turns


def test_a_branch_that_is_known_is_taken(tmp_path) -> None:
    model = read(
        tmp_path,
        """m (float[N, 2] x) => (float[N, 2] y) {
          on = Constant <value = bool {0}> ()
          y = If (on) <then_branch = a () => (p) { p = Neg(x) },
                       else_branch = b () => (q) { q = Exp(x) }>
        }""",
    )
    assert "if" not in str(model.network.program)
    np.testing.assert_allclose(model(X[:, :2]), np.exp(X[:, :2]), rtol=1e-5)


def test_a_loop_that_stacks(tmp_path) -> None:
    model = read(
        tmp_path,
        """m (float[2] x) => (float[T, 2] y) {
          most = Constant <value = int64 {3}> ()
          on = Constant <value = bool {1}> ()
          y = Loop (most, on) <body = b (int64 i, bool c)
            => (bool d, float[2] z) { d = Identity(c)
              z = Exp(x) }>
        }""",
    )
    wanted = np.broadcast_to(np.exp(X[0, :2]), (3, 2))
    np.testing.assert_allclose(model(X[0, :2]), wanted, rtol=1e-5, strict=True)


def test_a_branch_that_does_not_fit_is_not_read_where_the_condition_is_known(
    tmp_path,
) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
      m (float[N, 4] x, int64 rate) => (float[N, 4] y) {
        high = Constant <value_int = 16> ()  is = Equal (rate, high)
        y = If (is) <
          then_branch = t () => (float[N, 4] a) { a = Neg (x) },
          else_branch = e () => (float[N, 4] b) {
            shape = Constant <value_ints = [5, 5]> ()  b = Reshape (x, shape) }> }""")
    onnx.save(model, tmp_path / "net.onnx")
    x = X[:, :4]
    loaded = Model.load(tmp_path / "net.onnx")
    np.testing.assert_array_equal(loaded(x, np.array(16)), -x)
    with pytest.raises(TensorlangError, match="Reshape"):
        loaded(x, np.array(8))

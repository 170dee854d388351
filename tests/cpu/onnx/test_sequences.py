"""Sequences within a network, and results whose sizes are data."""

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.layers import Model

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
HEAD = '<ir_version: 9, opset_import: ["" : 18]> m (%s) => (%s) {%s}'
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture
def load(tmp_path):
    def loaded(takes, gives, line):
        model = onnx.parser.parse_model(HEAD % (takes, gives, line))
        onnx.save(model, tmp_path / "m.onnx")
        return Model.load(tmp_path / "m.onnx", train=False)

    return loaded


@pytest.mark.parametrize("new", [0, 1])
def test_a_sequence_is_joined_again(load, new) -> None:
    model = load(
        "float[b, 3, 4] x",
        "float[p, q, r, s] y, int64 n" if new else "float[p, q, r] y, int64 n",
        f"""s = SplitToSequence <axis = 1> (x)
        first = Constant <value = int64 {{-3}}> ()
        e = SequenceErase (s, first)
        a = SequenceAt (s, first)
        t = SequenceInsert (e, a)
        n = SequenceLength (t)
        y = ConcatFromSequence <axis = -1, new_axis = {new}> (t)""",
    )
    parts = [X[:, 1:2], X[:, 2:], X[:, :1]]
    wanted = np.stack(parts, -1) if new else np.concatenate(parts, -1)
    found, count = model(X)
    np.testing.assert_array_equal(found, wanted)
    assert count == 3


@pytest.mark.parametrize("position", [2, -3])
def test_a_position_that_does_not_exist(load, position) -> None:
    with pytest.raises(TensorlangError, match=rf"position {position} of a sequence"):
        load(
            "float[2] x, float[2] z",
            "float[2] y",
            f"""s = SequenceConstruct (x, z)
            p = Constant <value = int64 {{{position}}}> ()
            y = SequenceAt (s, p)""",
        )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "s = SequenceConstruct (x, x)\ny = Add (s, x)",
            "input 'operands' is a sequence",
        ),
        ("n = SequenceLength (x)\ny = Cast <to = 1> (n)", r"takes seq\(tensor"),
        ("s = SequenceConstruct (x, x)\ny = Identity (s)", "it is a sequence"),
        ("s = SequenceEmpty ()\ny = ConcatFromSequence <axis=0> (s)", "no arrays"),
    ],
)
def test_sequences_where_there_are_none(load, line, said) -> None:
    with pytest.raises(TensorlangError, match=said):
        load("float[2] x", "float[2] y", line)


def test_what_data_tells_is_read_at_the_call(load) -> None:
    model = load(
        "float[n] x",
        "float[m] y, int64[k, l] at",
        """z = Relu (x)
        y, a, b, c = Unique (z)
        at = NonZero (z)""",
    )
    for x in ([3, 1, -1, 3], [0.0], [], [2, 2]):
        given = np.array(x, np.float32)
        positive = np.maximum(given, 0)
        y, at = model(given)
        np.testing.assert_array_equal(y, np.unique(positive))
        np.testing.assert_array_equal(at, np.nonzero(positive))


def test_sizes_that_weights_and_data_tell_are_refused(tmp_path) -> None:
    text = """y = NonZero (z)"""
    made = HEAD % ("float[2, 2] x", "int64[k, l] y", "z = MatMul (x, w)\n" + text)
    model = onnx.parser.parse_model(made)
    weight = onnx.numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")
    model.graph.initializer.append(weight)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(TensorlangError, match="NonZero: its input 'X' depends on data"):
        Model.load(tmp_path / "m.onnx", train=False)


@pytest.mark.parametrize(
    ("boxes", "scores"),
    [((1, 5, 4), (5,)), ((1, 5, 4), (1, 2, 6)), ((5, 4), (1, 2, 5))],
)
def test_boxes_and_scores_that_do_not_fit(load, boxes, scores) -> None:
    takes = (f"float[{', '.join(map(str, each))}]" for each in (boxes, scores))
    given = "{} b, {} s".format(*takes)
    model = load(given, "int64[n, 3] y", "y = NonMaxSuppression (b, s)")
    with pytest.raises(TensorlangError, match=r"\[batch, count, 4\]"):
        model(np.ones(boxes, np.float32), np.ones(scores, np.float32))

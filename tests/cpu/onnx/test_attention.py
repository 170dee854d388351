"""Attention and rotary embedding, against ONNX's reference."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import TensorlangError
from tensorlang.graph import TensorSpec
from tensorlang.layers import Model

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
reference = pytest.importorskip("onnx.reference", reason="the extra onnx is missing")
RNG = np.random.default_rng(6)


@pytest.fixture
def check(tmp_path):
    """Compare a node with the reference, and return the program as text."""

    def checked(kind, inputs, results=1, rtol=1e-5, **attributes):
        from tensorlang.onnx.programs import load

        names = [f"x{n}" if x is not None else "" for n, x in enumerate(inputs)]
        outputs = [f"y{n}" for n in range(results)]
        given = {n: x for n, x in zip(names, inputs, strict=True) if n}
        helper = onnx.helper
        node = helper.make_node(kind, names, outputs, **attributes)
        kinds = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in given.items()}
        dims = list("abcd"[: inputs[0].ndim])
        ends = [
            [
                helper.make_tensor_value_info(n, kinds[n], x.shape)
                for n, x in given.items()
            ],
            [helper.make_tensor_value_info(n, kinds["x0"], dims) for n in outputs],
        ]
        made = helper.make_model(
            helper.make_graph([node], "g", *ends),
            opset_imports=[helper.make_opsetid("", 24)],
        )
        onnx.save(made, tmp_path / "m.onnx")
        found = Model.load(tmp_path / "m.onnx", train=False)(*given.values())
        found = found if isinstance(found, tuple) else (found,)
        wanted = reference.ReferenceEvaluator(made).run(None, given)
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol)
        specs = [TensorSpec(x.shape, x.dtype) for x in given.values()]
        return str(graph.trace(load(tmp_path / "m.onnx"), specs))

    return checked


def normal(*shape, dtype="float32"):
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 4, 3, 8), (2, 2, 5, 8), None),
        ((1, 3, 1, 5), (1, 3, 1, 5), (1, 3, 6, 5)),
        ((2, 2, 4, 8), (2, 2, 4, 8), (2, 2, 3, 8)),
    ],
)
def test_attention_is_a_kernel(check, shapes, causal, dtype) -> None:
    q, k, past = shapes
    inputs = [normal(*shape, dtype=dtype) for shape in (q, k, k)]
    if past is not None:
        inputs += [None, *(normal(*past, dtype=dtype) for _ in range(2))]
    rtol = 4e-3 if dtype == "float16" else 1e-5
    made = check("Attention", inputs, 3 if past else 1, rtol, is_causal=causal)
    assert "attention" in made
    assert "softmax" not in made


def test_heads_of_rows_and_masks(check) -> None:
    q, k = normal(2, 3, 24), normal(2, 5, 12)
    given = {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.3}
    assert "attention" in check("Attention", [q, k, k], **given)
    mask = normal(3, 5)
    assert "softmax" in check("Attention", [q, k, k, mask], **given)
    with pytest.raises(TensorlangError, match="5 heads of"):
        check("Attention", [q, k, k], q_num_heads=5, kv_num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 4])
@pytest.mark.parametrize("rows", [False, True])
def test_rotary_embedding(check, rows, part, interleaved) -> None:
    x = normal(2, 5, 24) if rows else normal(2, 3, 5, 8)
    given = {"num_heads": 3} if rows else {}
    given |= {"rotary_embedding_dim": part} if part else {}
    tables = [normal(9, (part or 8) // 2) for _ in range(2)]
    ids = RNG.integers(0, 9, (2, 5))
    made = check("RotaryEmbedding", [x, *tables, ids], interleaved=interleaved, **given)
    assert "rotary" in made

"""Operators as launches of threads: lowered code is what the definition says.

The interpreter runs the threads of all blocks at once, and finds a missing or divergent
barrier, a race, and an index out of bounds.
"""

import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.interpreter import run
from tensorlang.ir.verification.verifier import verify
from tensorlang.ops.kernels.building import default
from tensorlang.ops.registry import find
from tensorlang.runtime.describing import signature_of
from tensorlang.targets import get
from tensorlang.tuner.correctness.gate import Gate

# one of each kind of definition; tests/opencl runs all of them
NAMES = [
    "math.add",
    "math.add_grad",
    "math.argmax",
    "math.cumsum",
    "math.logsumexp",
    "math.matmul",
    "math.max",
    "math.mean",
    "math.power",
    "math.var_grad",
    "nn.avg_pool2d_grad",
    "nn.batch_norm_train",
    "nn.batch_norm_train_grad",
    "nn.concatenate",
    "nn.conv2d",
    "nn.conv2d_grad",
    "nn.cross_entropy",
    "nn.dense",
    "nn.dense_grad",
    "nn.dropout",
    "nn.dropout_train",
    "nn.embedding",
    "nn.embedding_grad",
    "nn.gelu_grad",
    "nn.layer_norm",
    "nn.layer_norm_grad",
    "nn.lstm",
    "nn.max_pool2d_grad",
    "nn.mse",
    "nn.pad",
    "nn.softmax",
    "nn.softmax_grad",
    "nn.transpose",
    "optim.adam",
    "optim.sum_of_squares",
    "random.bits",
    "random.categorical",
    "random.gather",
    "random.normal",
    "random.randint",
    "random.split",
]
GPU = get("cuda:sm_80")


@pytest.mark.parametrize("name", NAMES)
def test_threads_do_what_the_definition_says(name):
    op = find(name)
    gate = Gate(op, op.default, op.algorithms["direct"].tolerance)
    judge(op, gate.compiled(gate.odd))


CUTS = [
    {"begin": (None, 4), "end": (None, 12)},
    {"begin": (None, 3), "end": (None, 11)},
    {"begin": (4, 13), "end": None, "step": (-2, -3)},
    {"begin": (1, None), "end": None, "step": (2, 1)},
]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: str(cut["begin"]))
@pytest.mark.parametrize("name", ["nn.slice", "nn.slice_grad"])
def test_slices_are_what_the_definition_says(name, cut):
    op, shape = find(name), (5, 16)
    if name == "nn.slice":
        workload = op.workload(shape, **cut)
    else:
        taken = find("nn.slice").shape(shape, **cut)
        workload = op.workload(taken, shape, **cut)
    gate = Gate(op, workload, 0.0)
    judge(op, gate.compiled(workload))


def judge(op, case):
    func = default(op, case.workload, GPU, {})[0].function
    lowered = lower(func, GPU)
    verify(lowered)
    signature = signature_of(func)
    free = [s.bound for s in signature.scalars].count(False)
    assert free == len(case.scalars)
    given = iter(case.scalars)
    sizes = op.sizes(case.workload)
    scalars = {
        var.name: sizes[spec.name] if spec.bound else next(given)
        for spec, var in zip(signature.scalars, lowered.scalars, strict=True)
    }
    arrays = [array.copy() for array in case.runs[0].inputs]
    run(lowered, *(array.reshape(-1) for array in arrays), **scalars)
    for number, expected in zip(case.outputs, case.runs[0].expected, strict=True):
        assert expected.wrong(arrays[number]) is None

"""Rows of tables added up by blocks of threads, on PoCL: the CPU's bits and faults."""

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import KernelError
from tensorlang.ops import find, nn
from tensorlang.ops.kernels.building import schedule
from tensorlang.ops.nn import embedding_sorts
from tensorlang.runtime import build
from tensorlang.scheduling import Knobs

RNG = np.random.default_rng(8)


def test_rows_of_bf16_and_a_number_of_no_row(gpu_like, set_constant):
    set_constant(embedding_sorts, "THREADS", 32)
    set_constant(embedding_sorts, "ITEMS", 2)
    op = find("nn.embedding_grad")
    workload = op.workload((9, 16), (9,), (5, 16), dtypes=("bf16", "i64", "bf16"))
    made = schedule(op, workload, gpu_like, "sorted_in_memory", Knobs())
    launch = build(made, gpu_like, store=False).launch
    for count, rows in ((50, 7), (300, 40)):
        dy = RNG.normal(size=(count, 16)).astype(ml_dtypes.bfloat16)
        ids = RNG.integers(0, rows, count)
        table = np.zeros((rows, 16), dy.dtype)
        got = np.ones_like(table)
        launch(dy, ids, table, got)
        wanted = nn.embedding_grad(dy, ids, table, target="llvm")
        np.testing.assert_array_equal(got, wanted)
    ids[7] = rows
    with pytest.raises(KernelError):
        launch(dy, ids, table, got)

"""Kernels for Arm, under QEMU, compute the bits that their schedules do here."""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tensorlang import build, targets
from tensorlang.export import export_operator, machines
from tensorlang.ops import find, nn, random
from tensorlang.ops.kernels import building

TRIPLE = "aarch64-linux-gnu"
NEEDED = {f"{TRIPLE}-gcc": f"gcc-{TRIPLE}", "qemu-aarch64": "qemu-user"}
TOOLS = {
    "compiler": f"{TRIPLE}-gcc",
    "emulator": ("qemu-aarch64", "-L", f"/usr/{TRIPLE}"),
}
MISSING = [package for tool, package in NEEDED.items() if not shutil.which(tool)]
# operator -> shapes, type, fixed numbers, and those as the kernel here takes them
CASES = {
    "nn.dense": (((20, 30), (70, 30)), "float32", {}, ()),
    "nn.conv2d": (((3, 3, 12, 12), (16, 3, 3, 3)), "float32", {}, ()),
    "nn.softmax": (((7, 100),), "float32", {}, ()),
    "nn.gelu": (((7, 33),), "bfloat16", {}, ()),
    "math.sort": (((5, 100),), "float32", {}, ()),
    "nn.dropout": (((7, 100),), "float32", {"rate": 0.5}, (2**31 - 1, 0.5)),
}


@pytest.fixture(scope="module")
def on():
    return machines((), TRIPLE)


@pytest.mark.skipif(bool(MISSING), reason=f"apt-get install {' '.join(MISSING)}")
@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_on_arm(name, on, program, tmp_path):
    shapes, dtype, values, scalars = CASES[name]
    op = find(name)
    workload = op.workload(*shapes, dtypes=dtype)
    made = export_operator(op, [workload], tmp_path, values=values, on=on)
    _, schedule = building.best(op, workload, on[0].target)
    here = build(schedule.function, targets.host(), by_meaning=True)
    like = nn.relu(np.zeros(1, dtype)).dtype
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(like) for shape in shapes]
    if op.spec.keys:
        inputs.append(np.array(random.key(3).words))
    own = [buffer.shape for buffer in here.signature.buffers]
    flat = len(own[0]) < len(shapes[0])  # dimensions are collapsed
    given = [a.reshape(-1) if flat else a for a in inputs]
    y = here(*given, *scalars)
    for threads in (1, 3):
        arrays = (*inputs, np.zeros(y.shape, y.dtype))
        *_, found = program(made, threads, *arrays, **TOOLS)
        np.testing.assert_array_equal(found.view("u1"), np.asarray(y).view("u1"))


@pytest.fixture(params=["lenet", "transformer"])
def network(request, lenet, reader):
    """A network and a batch of 16."""
    images = np.random.default_rng(0).standard_normal((16, 1, 28, 28), np.float32)
    return (lenet, images) if request.param == "lenet" else reader


@pytest.mark.skipif(bool(MISSING), reason=f"apt-get install {' '.join(MISSING)}")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares with x86-64-v3")
def test_networks_on_arm(network, on, program, tmp_path):
    model, x = network
    like = np.zeros_like(model(x))
    twin = replace(on[0], triple="x86_64-linux-gnu", cpu="x86-64-v3")  # same kernels
    here, there = (
        model.export(tmp_path / machine.cpu, batch=[16], on=[machine])
        for machine in (twin, on[0])
    )
    _, expected = program(here, 1, x, like)
    np.testing.assert_allclose(expected, model(x), rtol=1e-3, atol=1e-4)
    for threads in (1, 3):
        _, found = program(there, threads, x, like, **TOOLS)
        np.testing.assert_array_equal(found.view("u1"), expected.view("u1"))


def test_objects_are_of_arm(on, tmp_path):
    op = find("math.exp")
    made = export_operator(op, [op.workload((8,))], tmp_path, on=on)
    machine = made.objects[0].read_bytes()[18:20]
    assert int.from_bytes(machine, "little") == 183  # EM_AARCH64
    assert bool(made.libraries) != bool(made.missing)

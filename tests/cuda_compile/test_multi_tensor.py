"""In-place operators over many sets of arrays: one kernel, few launches."""

import ctypes
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tensorlang.errors import DeviceError
from tensorlang.ops import find
from tensorlang.runtime import host_program
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import kernel as cuda_kernel
from tensorlang.runtime.cuda import multi_tensor as cuda_multi_tensor
from tensorlang.runtime.cuda import sets as cuda_sets

OPTIMIZERS = ["adam", "adamw", "adamax", "sgd", "rmsprop", "adagrad", "scale"]


@pytest.fixture(scope="module", params=OPTIMIZERS)
def kernel(request):
    op = find(f"optim.{request.param}")
    return op.build(op.default, "cuda:sm_90a")


def test_the_body_stands_once_and_loads_are_wide_and_of_global_memory(kernel):
    assert kernel.source.count("__forceinline__ void") == 1
    assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
    assert kernel.resources["registers"] <= 42
    _, *texts = re.split(r"\n\s*\.section\s+\.text\.", kernel.asm)
    assert len(texts) == 2
    loads = len(kernel.signature.buffers) * elements(kernel) // 1024
    for text in texts:
        assert len(re.findall(r"LDG\.E\.128", text)) == loads
        assert not re.search(r"\bLD\.E", text)


def elements(kernel):
    """Of one block."""
    count = 1 << 30
    return count // host_program.number(
        kernel._host["multi_tensor"]["blocks"], {"n0": count}
    )


def test_the_table_is_what_the_kernel_takes(kernel):
    many = kernel._host["multi_tensor"]
    ((table, _),) = cuda_multi_tensor.tables(many, [(5, range(9))])
    size = re.search(rf"{many['name']}_param_0\[(\d+)\]", kernel.ptx)
    assert ctypes.sizeof(table) == int(size[1])
    assert ctypes.sizeof(table) + 8 * len(many["scalars"]) <= 4096


def test_a_list_is_few_launches(kernel, monkeypatch):
    count = len(kernel.signature.buffers)
    sizes = [64, 1 << 20, 3, 4096] * 40
    sets = [(n, [16 * (9 * k + b) for b in range(count)]) for k, n in enumerate(sizes)]
    module = SimpleNamespace(
        device=SimpleNamespace(lock=nullcontext(), current=nullcontext),
        handles={kernel._host["multi_tensor"]["name"]: 77},
    )
    started = []

    def launch(name, handle, *given):
        *size, stream, params, _ = given
        table = cuda_multi_tensor._table_of(kernel._host["multi_tensor"]["most"], count)
        numbers = [ctypes.c_float.from_address(at).value for at in params[1:]]
        copy = table.from_buffer_copy(table.from_address(params[0]))
        started.append((name, handle, size, stream, copy, numbers))

    monkeypatch.setitem(kernel.__dict__, "module", module)
    monkeypatch.setattr(cuda_sets, "sets_of", lambda *_: sets)
    monkeypatch.setattr(cuda_kernel, "current_stream", lambda _: 5)
    monkeypatch.setattr(cuda_driver, "call", launch)
    free = [spec.name for spec in kernel.signature.free]
    values = [float(n) for n, _ in enumerate(free, 1)]
    assert kernel._each(*[[None]] * count, *values)
    asked = dict(zip(free, values, strict=True))
    most = kernel._host["multi_tensor"]["most"]
    assert len(started) == -(-len(sizes) // most) <= 3
    expected = [asked[name] for name in kernel._host["multi_tensor"]["scalars"]]
    for name, handle, size, stream, table, numbers in started:
        assert (name, handle, stream, numbers) == ("cuLaunchKernel", 77, 5, expected)
        blocks = sum(-(-n // elements(kernel)) for n in table.lengths[: table.count])
        assert size == [blocks, 1, 1, 256, 1, 1, 0]
    seen = [n for *_, table, _ in started for n in table.lengths[: table.count]]
    assert seen == sizes
    monkeypatch.delitem(kernel.__dict__, "module")
    monkeypatch.setattr(cuda_driver, "capturing", lambda stream: stream == 5)
    with pytest.raises(DeviceError, match="call it once before"):
        kernel._each(*[[None]] * count, *values)

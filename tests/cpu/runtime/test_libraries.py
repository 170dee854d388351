"""Arrays of other libraries go in, and outputs come back in the caller's kind."""

import array

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError

F32 = np.float32


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="needs JAX")


@pytest.fixture
def copy_kernel(assemble):
    """y = x, 2 bytes an element."""

    def make(dtype):
        text = """
        declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
        define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
          %x = load ptr, ptr %args
          %y.at = getelementptr ptr, ptr %args, i64 1
          %y = load ptr, ptr %y.at
          %n.at = getelementptr i64, ptr %args, i64 2
          %n = load i64, ptr %n.at
          %bytes = mul i64 %n, 2
          call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %x, i64 %bytes, i1 false)
          ret i32 0
        }
        """
        x, y = assemble.buffer("x", dtype), assemble.buffer("y", dtype, "out")
        return assemble(text, [x, y], [("n", "i64")])

    return make


@pytest.mark.parametrize("size", [16, 100_000])
def test_torch_tensors_give_torch_tensors(scale, torch, size):
    x = torch.arange(size, dtype=torch.float32)
    y = scale(x, 2.0)
    assert isinstance(y, torch.Tensor)
    assert torch.equal(y, 2 * x)
    y.add_(1)  # the result is writable
    out = torch.zeros(size)
    assert scale(x, 3.0, out=out) is out
    assert torch.equal(out, 3 * x)


def test_torch_views_are_copied_in_and_back(scale, torch):
    x, out = torch.arange(32.0)[::2], torch.zeros(16, 2)[:, 0]
    scale(x, 2.0, out=out)
    assert torch.equal(out, 2 * x)


def test_torch_bfloat16(copy_kernel, torch):
    x = torch.arange(50_000).to(torch.bfloat16)
    y = copy_kernel("bf16")(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(x, y)


def test_torch_tensors_with_gradients_are_refused(scale, torch):
    x = torch.ones(16, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"x requires a gradient.*\.detach\(\)"):
        scale(x, 2.0)


def test_nothing_is_recorded_where_pytorch_says_so(scale, torch):
    x = torch.ones(16, requires_grad=True)
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            assert torch.equal(scale(x, 2.0), 2 * torch.ones(16))


def test_what_a_kernel_writes_is_not_differentiated_as_it_was(scale, torch):
    x = torch.ones(16, requires_grad=True)
    held = x.detach() * 1
    y = (x * held).sum()
    scale(torch.ones(16), 2.0, out=held)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_torch_tensors_elsewhere_are_refused(scale, torch):
    with pytest.raises(ArgumentError, match=r"hand: x is on the meta device; pass"):
        scale(torch.ones(16, device="meta"), 2.0, out=np.empty(16, F32))


def test_jax_arrays_give_jax_arrays(scale, jax):
    for size in (16, 100_000):
        x = jax.numpy.arange(size, dtype=F32)
        y = scale(x, 2.0)
        assert isinstance(y, jax.Array)
        np.testing.assert_array_equal(y, 2 * np.asarray(x))


def test_jax_bfloat16(copy_kernel, jax):
    x = jax.numpy.arange(100, dtype=jax.numpy.bfloat16)
    y = copy_kernel("bf16")(x)
    assert y.dtype == jax.numpy.bfloat16
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_jax_arrays_are_not_written(scale, jax):
    out = jax.numpy.zeros(16)
    with pytest.raises(
        ArgumentError, match="y is a JAX array, which cannot be written"
    ):
        scale(np.ones(16, F32), 2.0, out=out)


def test_jax_tracers_are_refused(scale, jax):
    with pytest.raises(ArgumentError, match="being traced by JAX"):
        jax.jit(lambda x: scale(x, 2.0))(jax.numpy.ones(16))


def test_a_mix_of_libraries(scale, torch, jax):
    out = torch.zeros(16)
    scale(jax.numpy.ones(16, jax.numpy.float32), 2.0, out=out)
    assert torch.equal(out, torch.full((16,), 2.0))


class Interface:
    """An array of a library that nobody knows, through NumPy's protocol."""

    def __init__(self, values):
        self.values = values

    @property
    def __array_interface__(self):
        return self.values.__array_interface__


class Exporter:
    """The same through DLPack."""

    shape = (16,)

    def __init__(self, values, device=None):
        self.values, self.device = values, device

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device or self.values.__dlpack_device__()


def test_the_array_interface(scale):
    x, y = np.ones(16, F32), np.zeros(16, F32)
    scale(Interface(x), Interface(y), 2.0)
    assert y[3] == 2


def test_dlpack_of_an_unknown_library(scale):
    x, y = np.ones(16, F32), np.zeros(16, F32)
    scale(Exporter(x), Exporter(y), 2.0)
    assert y[3] == 2


def test_dlpack_on_another_device_is_refused(scale):
    with pytest.raises(
        ArgumentError, match="on a device that this target cannot reach"
    ):
        scale(Exporter(np.ones(16, F32), device=(2, 0)), np.zeros(16, F32), 2.0)


@pytest.mark.parametrize("error", [KeyError("x"), ZeroDivisionError, AttributeError])
def test_whatever_an_exporter_raises_is_told_by_name(scale, error):
    class Failing(Exporter):
        def __dlpack__(self, **_):
            raise error

    with pytest.raises(ArgumentError, match=r"Failing cannot be read in place"):
        scale(Failing(np.ones(16, F32)), np.zeros(16, F32), 2.0)


def test_the_buffer_protocol(scale):
    x, y = array.array("f", [1, 2, 3]), array.array("f", [0, 0, 0])
    scale(x, y, 2.0)
    assert list(y) == [2, 4, 6]
    with pytest.raises(ArgumentError, match="y is read-only"):
        scale(x, memoryview(bytes(12)).cast("f"), 2.0)
    with pytest.raises(DTypeError, match="x has dtype uint8"):
        scale(b"abc", y, 2.0)


def test_ndarray_subclasses(scale):
    class Mine(np.ndarray):
        pass

    x = np.ones(16, F32).view(Mine)
    np.testing.assert_array_equal(scale(x, 2.0), np.full(16, 2, F32))

"""Calls that a caller captures into a CUDA graph of its own."""

import contextlib

import numpy as np
import pytest

from tensorlang import build
from tensorlang.errors import ArgumentError, DeviceError
from tensorlang.ops import find
from tensorlang.ops import math as tl_math

X = np.linspace(-1, 1, 70, dtype=np.float32)
STREAM = 66


@pytest.fixture
def capture(driver):
    """What is captured on the stream in a `with`: the launches."""

    @contextlib.contextmanager
    def begin():
        driver.capturing = (STREAM, [])
        driver.calls.clear()
        yield driver.capturing[1]
        driver.capturing = None

    return begin


def test_launches_and_their_memory_become_part_of_the_graph(
    driver, fake, capture, many_launches
):
    kernel, x = build(many_launches, "cuda"), fake.Tensor(driver, X, stream=STREAM)
    for _ in range(3):
        kernel(x, 3)  # one by one, then as a graph of our own
    assert driver.counted("cuGraphLaunch") == 2
    for again in range(2):
        kernel = kernel if again else build(many_launches, "cuda")
        with capture() as launches:
            kernel(x, 3)
        assert len(launches) == 6
        names = [call[0] for call in driver.calls]
        assert names.count("cuMemAllocFromPoolAsync") == 1
        freed = [call[1:] for call in driver.calls if call[0] == "cuMemFreeAsync"]
        assert [stream for _, stream in freed] == [STREAM]
        assert {launch[3][1] for launch in launches[::2]} == {freed[0][0]}
    kernel(x, 3)
    assert driver.counted("cuGraphLaunch") == 1


def test_a_single_launch_is_as_always(driver, fake, capture):
    x = fake.Tensor(driver, X, stream=STREAM)
    out = fake.Tensor(driver, X, stream=STREAM)
    tl_math.add(x, x, out=out)
    with capture() as launches:
        tl_math.add(x, x, out=out)
    assert len(launches) == 1
    asked = {"cuStreamIsCapturing", "cuCtxGetCurrent", "cuPointerGetAttribute"}
    assert {call[0] for call in driver.calls} <= asked


def test_what_cannot_be_captured_is_told(driver, fake, capture):
    op = find("math.add")
    kernel = op.build(op.workload((70,), (70,)), "cuda")
    x, out = (fake.Tensor(driver, X, stream=STREAM) for _ in range(2))
    launch = kernel.cached_launch([(70,)] * 3)  # kept before a call first runs
    for _ in range(2):
        with capture(), pytest.raises(DeviceError, match="call it once before"):
            kernel(x, x, out=out)
        with capture(), pytest.raises(DeviceError, match="call it once before"):
            launch.run([x.address, x.address, out.address], [], STREAM)
        assert driver.counted("cuModuleLoadData") == 0
    kernel(x, x, out=out)
    with capture(), pytest.raises(ArgumentError, match="move it to the GPU before"):
        kernel(x, X, out=out)
    kernel(x, X, out=out)
    with capture(), pytest.raises(ArgumentError, match="move it to the GPU before"):
        kernel(x, X, out=out)
    np.testing.assert_array_equal(out.get(), X + X)

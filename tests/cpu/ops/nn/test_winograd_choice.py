"""Where Winograd's convolutions are chosen, and how they are judged."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import ArgumentError
from tensorlang.ops import nn
from tensorlang.ops.kernels.building import preferred, schedule
from tensorlang.ops.nn import winograd_blocks
from tensorlang.ops.nn.winograd_matrices import F2, F4, Transforms
from tensorlang.runtime import build
from tensorlang.scheduling import Knobs
from tensorlang.tuner.correctness.gate import Gate, Wrong
from tensorlang.tuner.search.space import Space

FREE = 1e-3


def images(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chosen(found):
    """The algorithm that approximates, or else `exact`."""
    name = preferred(nn.conv2d, found, targets.get("llvm"))
    return name if name.startswith("winograd") else "exact"


def kernel(of, algorithm):
    target = targets.get("llvm")
    return build(schedule(nn.conv2d, of, target, algorithm, Knobs()), target)


def test_a_tolerance_chooses_the_algorithm():
    sizes = (1, 64, 56, 56), (64, 64, 3, 3)
    found = {
        allowed: chosen(nn.conv2d.workload(*sizes, padding=1, tolerance=allowed))
        for allowed in (None, 0, 1e-6, F2.tolerance, F4.tolerance, 1.0)
    }
    assert list(found.values()) == ["exact"] * 3 + ["winograd23"] + ["winograd43"] * 2
    for given in ({"stride": 2}, {"dilation": 2}, {"groups": 2}, {"layout": "NHWC"}):
        images = (1, 56, 56, 64) if "layout" in given else sizes[0]
        own = 64 // given.get("groups", 1)
        other = nn.conv2d.workload(
            images, (64, own, 3, 3), padding=1, tolerance=1.0, **given
        )
        assert chosen(other) == "exact"


def test_few_channels_and_small_images_stay_with_the_plain_sum():
    for channels, size, outputs in ((3, 64, 64), (512, 7, 512), (4, 56, 4)):
        found = nn.conv2d.workload(
            (1, channels, size, size), (outputs, channels, 3, 3), tolerance=1.0
        )
        assert chosen(found) == "exact"


def test_calls_share_a_kernel_whatever_they_allow_beyond_it():
    x, w = images(2, 32, 24, 24), images(32, 32, 3, 3, seed=1)
    made = nn.conv2d(x, w, padding=1, tolerance=FREE)
    plain = nn.conv2d(x, w, padding=1)
    tight = nn.conv2d(x, w, padding=1, tolerance=1e-7)
    np.testing.assert_array_equal(plain, tight)
    assert (made != plain).any()
    np.testing.assert_allclose(made, plain, rtol=F4.tolerance, atol=10 * F4.tolerance)
    before = nn.conv2d.kernel(x, w, padding=1, tolerance=FREE)
    assert nn.conv2d.kernel(x[:1], w, padding=1, tolerance=0.5) is before
    assert nn.conv2d(x[:0], w, padding=1, tolerance=FREE).shape == (0, 32, 24, 24)


def test_a_tolerance_is_a_number_from_0():
    for wrong in (-1, "exact", True):
        with pytest.raises(ArgumentError, match="tolerance is None or a relative"):
            nn.conv2d(images(1, 1, 4, 4), images(1, 1, 3, 3), tolerance=wrong)


def test_the_tuners_gate_judges_by_what_is_declared(monkeypatch):
    of = nn.conv2d.workload((1, 16, 9, 9), (16, 16, 3, 3), padding=1, tolerance=FREE)
    declared = nn.conv2d.algorithms["winograd43"].tolerance
    assert declared == F4.tolerance
    gate = Gate(nn.conv2d, of, declared, finite=True)
    assert gate.tolerance == declared
    assert 0 < gate.check(kernel(of, "winograd43"), gate.full) < 0.25
    row = (*F4.result[0][:1], 1.01, *F4.result[0][2:])
    wrong = Transforms(4, F4.image, F4.weight, (row, *F4.result[1:]), declared)
    monkeypatch.setitem(winograd_blocks.TRANSFORMS, 4, wrong)
    monkeypatch.setattr(nn.conv2d, "_traces", {})  # so that it is defined again
    with pytest.raises(Wrong):
        gate.check(kernel(of, "winograd43"), gate.full)


def test_tuning_starts_from_what_runs_untuned():
    of = nn.conv2d.workload((1, 64, 28, 28), (64, 64, 3, 3), padding=1, tolerance=FREE)
    space = Space(nn.conv2d, of, targets.get("llvm"))
    assert space.algorithms[0] == chosen(of) == "winograd43"
    assert set(space.algorithms) == {
        "channels_last",
        "direct",
        "implicit_gemm",
        "winograd23",
        "winograd43",
    }
    tight = nn.conv2d.workload((1, 64, 28, 28), (64, 64, 3, 3), padding=1)
    plain = Space(nn.conv2d, tight, targets.get("llvm"))
    assert plain.algorithms == ("implicit_gemm", "direct", "channels_last")

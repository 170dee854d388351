"""What a multiprocessor holds, as NVIDIA's occupancy calculator has it."""

from dataclasses import replace

import pytest

from tensorlang import targets
from tensorlang.machine.gpus import DEVICES, GPUS, gpu_of


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 32, 0, 8),  # all 64 warps
        (256, 33, 0, 6),  # 40 registers a thread are given
        (256, 64, 0, 4),
        (1024, 64, 0, 1),
        (1024, 65, 0, 0),  # more registers than there are
        (32, 16, 0, 32),  # as many blocks as there may be
        (128, 255, 0, 2),
        (256, 32, 48 << 10, 3),
        (256, 32, 163 << 10, 1),
        (256, 32, 164 << 10, 0),
    ],
)
def test_blocks_of_a_multiprocessor(threads, registers, shared, blocks):
    assert GPUS["sm_80"].resident(threads, registers, shared) == blocks


def test_occupancy_is_the_part_of_its_warps():
    assert GPUS["sm_90a"].occupancy(256, 128, 16 << 10) == 0.25
    assert GPUS["sm_90a"].occupancy(256, 32, 0) == 1.0


def test_every_architecture_that_is_compiled_for_is_known():
    for arch, shared in targets.ARCHITECTURES.items():
        gpu = gpu_of(targets.get(f"cuda:{arch}"))
        assert gpu is not None
        assert gpu.resident(32, 32, shared) == 1
    assert gpu_of(targets.host()) is None


def test_devices_of_one_architecture_are_told_apart_by_name():
    named = replace(targets.get("cuda:sm_90a"), device="NVIDIA H200")
    assert gpu_of(named) == DEVICES["H200"]
    assert gpu_of(replace(named, device="NVIDIA H100 80GB HBM3")) == DEVICES["H100"]
    assert DEVICES["H100"].peak == pytest.approx(989e12, rel=1e-2)  # its data sheet
    assert GPUS["sm_80"].peak == pytest.approx(312e12, rel=1e-2)

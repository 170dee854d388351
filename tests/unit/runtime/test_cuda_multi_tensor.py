"""Tables of launches for many sets: each block finds its own, and all are found."""

import ctypes

import numpy as np
import pytest

from tensorlang.runtime.cuda import multi_tensor as cuda_multi_tensor

MANY = {
    "most": 90,
    "length": "n",
    "blocks": ["floordiv", ["add", "n", 1023], 1024],
    "buffers": [1, 0],
}


def sets_of(sizes):
    return [(size, [1000 * k + 1, 1000 * k + 2]) for k, size in enumerate(sizes)]


def found(table, block):
    """The set of a block as the kernel looks it up, and the block's number in it."""
    at, end = 0, table.count
    while end - at > 1:
        middle = (at + end) // 2
        at, end = (middle, end) if table.first[middle] <= block else (at, middle)
    return at, block - table.first[at]


def parts(sizes):
    """What all blocks of all launches do: an array's address, and where it begins."""
    for table, blocks in cuda_multi_tensor.tables(MANY, sets_of(sizes)):
        for block in range(blocks):
            at, own = found(table, block)
            assert own * 1024 < table.lengths[at]
            yield table.addresses[0][at], table.addresses[1][at], own * 1024


@pytest.mark.parametrize(
    "sizes",
    [
        [1],
        [0, 0],
        [0, 5, 0, 1024, 1025, 0],
        [64, 256, 4096, 1 << 16, 64, 2048, 1 << 18],
        [7] * 200,
    ],
)
def test_blocks_share_out_all_elements_of_all_sets(sizes):
    expected = [
        (1000 * k + 2, 1000 * k + 1, start)
        for k, size in enumerate(sizes)
        for start in range(0, size, 1024)
    ]
    assert list(parts(sizes)) == expected


def test_161_arrays_are_two_launches_and_no_sets_none():
    tables = list(cuda_multi_tensor.tables(MANY, sets_of([100] * 161)))
    assert [(table.count, blocks) for table, blocks in tables] == [(90, 90), (71, 71)]
    assert not list(cuda_multi_tensor.tables(MANY, []))


def test_a_grid_has_no_more_blocks_than_a_gpu_starts():
    half = (1 << 30) * 1024
    tables = list(cuda_multi_tensor.tables(MANY, sets_of([half, half])))
    assert [blocks for _, blocks in tables] == [1 << 30, 1 << 30]


def test_arguments_are_a_table_and_numbers():
    ((table, _),) = cuda_multi_tensor.tables(MANY, sets_of([5]))
    block = (ctypes.c_uint64 * 3)(7, 8, 9)
    given = cuda_multi_tensor.arguments(table, block, [2, 0])
    assert given[0] == ctypes.addressof(table)
    numbers = [ctypes.c_uint64.from_address(given[k]).value for k in (1, 2)]
    np.testing.assert_array_equal(numbers, [9, 7])

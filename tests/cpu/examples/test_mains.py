"""Each example run as its docstring says: one line, and it is right."""

from __future__ import annotations

import re

import pytest

SAID = {
    "attention": r"largest error \d\.\de-0[78]",
    "blur": r"largest error \d\.\de-0[78]",
    "embedding_bag": r"largest error \d\.\de-0[67]",
    "histogram": "32 bins: True",
    "int8_matmul": "64x48 results, scaled, rounded and clipped: True",
    "rms_swiglu": r"largest error \d\.\de-0[67]",
    "spmv": r"largest error \d\.\de-0[67]",
    "adam": r"largest error \d\.\de-0[789]",
    "argmax": "512 rows, ties to the lowest column: right",
    "conv2d": r"largest error \d\.\de-0[45]",
    "hopper_ring": r"largest error \d\.\de-0[56]; (not compiled: .*"
    r"|compiled with HGMMA.64x128x16, USETMAXREG, UTMALDG.2D)",
    "embedding_grad": r"largest error \d\.\de-0[67]",
    "online_softmax": r"largest relative error \d\.\de-0[67]",
    "radix_sort": "1000003 keys, equal ones in their old order: True",
}


@pytest.mark.parametrize("name", SAID)
def test_the_example_runs(load, capsys, name):
    load(name).main()
    assert re.fullmatch(SAID[name], capsys.readouterr().out.strip())

"""Every operator compiles for each architecture, and spills no register."""

import pytest

from tensorlang import targets
from tensorlang.ops.registry import operators

LIBRARY = [op for op in operators() if op.module.startswith("tensorlang.")]


@pytest.mark.parametrize("arch", targets.ARCHITECTURES)
@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.id)
def test_of_every_operator(op, arch):
    kernel = op.build(op.default, f"cuda:{arch}")
    assert kernel.artifact.object_code[:4] == b"\x7fELF"
    assert 0 < kernel.resources["registers"] <= 255
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["shared_bytes"] <= targets.ARCHITECTURES[arch]


def test_there_are_so_many_operators():
    assert len(LIBRARY) > 150

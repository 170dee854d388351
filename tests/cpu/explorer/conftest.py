"""The stages of an operator's kernel."""

from __future__ import annotations

import pytest

from tensorlang import runtime, targets
from tensorlang.cli import configuration, options
from tensorlang.explorer.page import Subject


@pytest.fixture(scope="session")
def subject():
    """A function that gives the page's subject of an operator."""

    def make(name, shape=None, target="llvm"):
        op, machine = options.operator(name), targets.to_compile(target)
        workload = options.workload(op, shape)
        chosen = configuration.choose(op, workload, machine)
        kernel = runtime.build(chosen.schedule, machine, knobs=chosen.knobs.values)
        definition = op.function(workload, chosen.algorithm)
        return Subject(str(workload), chosen.why, definition, chosen.schedule, kernel)

    return make

"""The stages of an operator's kernel."""

from __future__ import annotations

import pytest

from tensorlang import targets
from tensorlang.cli import configuration, options
from tensorlang.cli.explore import subject_of


@pytest.fixture(scope="session")
def subject():
    """A function that gives the page's subject of an operator."""

    def make(name, shape=None, target="llvm", dtype=None):
        op, machine = options.operator(name), targets.to_compile(target)
        workload = options.workload(op, shape, dtype)
        chosen = configuration.choose(op, workload, machine)
        return subject_of(op, workload, machine, chosen)

    return make

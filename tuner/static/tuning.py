"""Tuning without the GPU: candidates are compiled and ranked by static cost.

The result is an estimate: its record is marked, and any measured record overrides it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from tensorlang import targets
from tensorlang.errors import TargetError
from tensorlang.runtime.cuda import toolchain
from tensorlang.tuner.progress import Report

if TYPE_CHECKING:
    from tensorlang.record_files import Record
    from tensorlang.targets import Target
    from tensorlang.tuner.search.search import Search
    from tensorlang.tuner.tuning_run import Run
    from tensorlang.tuner.workers.protocol import Candidate

# share of the default's estimate; closer ones are indistinguishable to the model
WORTH: Final = 0.97
SAID: Final = "estimated by static cost, nothing was run"


def machine(spec: str | Target | None, *, compile_only: bool = False) -> Target:
    """The target to tune for: a present device, or an architecture to compile for.

    Raises:
        TargetError: unknown name; no such device without `compile_only`; or with it, a
            target that can be measured or cannot be compiled for.
    """
    return _to_compile(spec) if compile_only else _to_measure(spec)


def _to_measure(spec: str | Target | None) -> Target:
    try:
        found = targets.get(spec)
    except TargetError as problem:
        if isinstance(spec, str) and spec.startswith("cuda"):
            raise TargetError(
                f"no GPU to measure on ({problem}); --compile-only searches "
                "by static cost instead"
            ) from None
        raise
    if found.index < 0:
        raise TargetError(
            f"{found.name} is an architecture to compile for, no GPU to measure on; "
            "--compile-only searches by static cost instead"
        )
    return found


def _to_compile(spec: str | Target | None) -> Target:
    found = targets.to_compile(spec)
    if found.kind != "cuda":
        raise TargetError(
            f"{found.name} can be measured here, and its compilers tell neither "
            "registers nor instructions: tune it without --compile-only"
        )
    if lacking := toolchain.missing():
        raise TargetError(f"--compile-only needs CUDA's compilers: {lacking}")
    if found.index < 0:
        return found
    return targets.get(f"cuda:{found.arch}")


def report(run: Run, search: Search, default: Candidate) -> Report:
    """The choice of the search by its estimates: the default, unless clearly worse."""
    base = search.known[default.key][1].seconds
    best, outcome = search.best(1)[0]
    if outcome.seconds > WORTH * base:
        best, outcome = default, search.known[default.key][1]
    return Report(
        operator=run.op.id,
        workload=run.workload,
        target=run.target.fingerprint,
        default_seconds=base,
        best=best,
        seconds=outcome.seconds,
        spread=0.0,
        ratio=None,
        trials=search.tried,
        earlier=search.earlier,
        counts=dict(search.counts),
        reasons=dict(search.reasons),
        interrupted=run.interrupted,
        spent=dict(run.spent),
        exhausted=search.exhausted,
        note=SAID,
        static=True,
    )


def note_measured_record(made: Report, incumbent: Record | None) -> Report:
    """Note in the report that a measured record remains in use.

    Estimates never override measurements.
    """
    if incumbent is None or incumbent.static:
        return made
    kept = "a measured record of this workload stays in use"
    return dataclasses.replace(made, note=f"{made.note}; {kept}")

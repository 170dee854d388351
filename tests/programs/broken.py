"""A program that a step breaks once the rule that forbids it is off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorlang.scheduling.trace import Step


def step(name: str, *args: Any, **options: Any) -> Step:
    """A call of a primitive."""
    return Step(name, args, options)


@dataclass(frozen=True)
class Broken:
    """IR text, the step that a rule refuses, and what it takes for it to show."""

    text: str
    refused: Step
    after: tuple[Step, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)

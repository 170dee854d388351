"""Planned memory: what lives at one time lies apart, aligned, and near the least."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tensorlang.graph.execution.memory import Lifetime, placed

LIVES = st.lists(
    st.builds(
        lambda items, width, first, more: Lifetime(items * width, first, first + more),
        st.integers(0, 60),
        st.sampled_from([1, 2, 4, 8]),
        st.integers(0, 12),
        st.integers(0, 5),
    ),
    max_size=20,
)


@given(LIVES)
def test_what_lives_at_one_time_lies_apart(lives) -> None:
    offsets, size = placed(lives)
    for n, (life, low) in enumerate(zip(lives, offsets, strict=True)):
        assert 0 <= low <= low + life.size <= size
        for other, place in list(zip(lives, offsets, strict=True))[:n]:
            at_once = life.first <= other.last and other.first <= life.last
            apart = low + life.size <= place or place + other.size <= low
            assert apart or not at_once or not life.size * other.size


@given(LIVES)
def test_elements_are_aligned(lives) -> None:
    offsets, _ = placed(lives)
    for life, offset in zip(lives, offsets, strict=True):
        step = 64 if life.size >= 64 else life.size & -life.size or 1
        assert offset % step == 0


def test_a_chain_needs_two_and_small_values_are_not_padded() -> None:
    chain = [Lifetime(4000, n, n + 1) for n in range(9)]
    assert placed(chain)[1] == 4032 + 4000
    assert placed([Lifetime(4096, 0, 9), *[Lifetime(4, n, 9) for n in range(5)]])[
        1
    ] == (4096 + 5 * 4)

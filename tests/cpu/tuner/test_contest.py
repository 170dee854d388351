"""Given configurations against each other, and what each knob gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensorlang import targets
from tensorlang.errors import ArgumentError, TuningError
from tensorlang.ops import find, nn, random
from tensorlang.tuner.search.contest import compare, effects, given
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.workers.protocol import Candidate

HERE = targets.host()
SIZE = 1 << 14


def test_the_faster_of_two_is_told(user_operator: Callable[..., str]) -> None:
    op = find(user_operator("slow", "fast"))
    workload = op.workload((SIZE,), dtypes="u32")
    (slow, fast), found = compare(op, workload, HERE, ("default", "way=fast"))
    assert (slow.knobs, fast.knobs) == ({"way": "slow"}, {"way": "fast"})
    ratio = found.gain(slow, fast)
    assert ratio is not None
    assert ratio.low > 2
    assert found.failed == {}


def test_one_that_is_not_right_has_no_time(user_operator: Callable[..., str]) -> None:
    op = find(user_operator("slow", "wrong", "segfault"))
    workload = op.workload((SIZE,), dtypes="u32")
    for way, why in {"wrong": "wrong: ", "segfault": "crashed: "}.items():
        pair, found = compare(op, workload, HERE, ("default", f"direct(way={way})"))
        assert found.failed[pair[1].key].startswith(why)
        assert found.gain(*pair) is None


def space() -> Space:
    return Space(random.bits, random.bits.workload((SIZE,), threads=2), HERE)


def test_configurations_are_given_by_text_and_file(tmp_path: Path) -> None:
    default = space().default().candidate
    other = Candidate("direct", {**default.knobs, "lanes": 16, "nontemporal": True})
    path = tmp_path / "configuration.txt"
    path.write_text("direct(lanes=16,\n  nontemporal=True)\n")
    assert given("default", space()) == default
    for text in (str(other), "lanes=16,nontemporal=true", str(path)):
        assert given(text, space()) == other
    assert given("algorithm=direct,lanes=16,nontemporal=true", space()) == other


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("magic(lanes=16)", "has the algorithms direct"),
        ("lanes=7", "knob 'lanes' is one of"),
        ("speed=7", "no knob speed"),
        ("nonsense", "is no configuration; give default"),
        ("", "is no configuration|are the same"),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        compare(random.bits, space().workload, HERE, ("default", text))


def test_the_same_code_is_not_compared() -> None:
    default = str(space().default().candidate)
    with pytest.raises(ArgumentError, match="are the same code"):
        compare(random.bits, space().workload, HERE, ("default", default))


def test_each_knob_is_set_back_to_its_default() -> None:
    default = space().default().candidate
    chosen = Candidate("direct", {**default.knobs, "lanes": 8, "chunk": 16})
    whole, found = effects(random.bits, space().workload, HERE, chosen)
    assert whole is not None
    assert [effect.knob for effect in found] == ["lanes", "chunk"]
    assert (found[0].default, found[0].value) == (default.knobs["lanes"], 8)
    assert found[0].gain is not None or found[0].note == "the same code"
    assert effects(random.bits, space().workload, HERE, default)[1] == []


def test_another_algorithm_is_an_effect_of_its_own() -> None:
    workload = nn.conv2d.workload((1, 8, 12, 12), (16, 8, 3, 3), dtypes="f32")
    first, *others = Space(nn.conv2d, workload, HERE).algorithms
    if not others:
        pytest.skip("one algorithm serves this convolution")
    whole, found = effects(nn.conv2d, workload, HERE, Candidate(others[0]))
    assert whole is not None
    assert [(e.knob, e.default, e.value) for e in found] == [
        ("algorithm", first, others[0])
    ]


def test_what_is_no_longer_right_is_not_explained(
    user_operator: Callable[..., str],
) -> None:
    op = find(user_operator("slow", "wrong"))
    workload = op.workload((SIZE,), dtypes="u32")
    with pytest.raises(TuningError, match="is no longer right: wrong: "):
        effects(op, workload, HERE, Candidate("direct", {"way": "wrong"}))

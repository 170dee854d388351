"""A statistical gate for every hash, reduced rounds above all.

Seeds are fixed, so these pass or fail for good: a threshold of 1e-4 on each p-value
leaves room for the hundred tests, and a broken hash misses it by far.
"""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ops import random

stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")

IMPLS = (
    *("threefry2x32-13", "threefry2x32-16", "threefry2x32", "threefry2x64-13"),
    *("threefry4x32-12", "threefry4x32-13", "threefry4x64-13"),
    *("philox2x32-7", "philox4x32-7", "philox4x32"),
)
STREAMS = ("jax", "packed")
LIMIT = 1e-4
COUNT = 1 << 18


def draws(name, stream):
    return random.bits(random.key(2026, impl=name), (COUNT,), stream=stream)


def pairs(words):
    """Chi-squared over the upper four bits of an element and of the next."""
    top = (words >> 28).astype(int)
    counts = np.bincount(16 * top[:-1:2] + top[1::2], minlength=256)
    return stats.chisquare(counts).pvalue


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", IMPLS)
class TestHash:
    def test_uniform_by_kolmogorov_and_smirnov(self, name, stream):
        drawn = random.uniform(random.key(1, impl=name), (COUNT,), stream=stream)
        assert stats.kstest(drawn, "uniform").pvalue > LIMIT

    def test_bytes_are_alike_often(self, name, stream):
        counts = np.bincount(draws(name, stream).view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > LIMIT

    def test_each_bit_is_a_fair_coin(self, name, stream):
        ones = np.array([np.sum(draws(name, stream) >> b & 1) for b in range(32)])
        worst = np.abs(ones - COUNT / 2).max() / np.sqrt(COUNT / 4)
        assert 32 * 2 * stats.norm.sf(worst) > LIMIT

    def test_pairs_of_neighbours_are_alike_often(self, name, stream):
        assert pairs(draws(name, stream)) > LIMIT

    def test_neighbours_collide_as_chance_has_it(self, name, stream):
        words = draws(name, stream)[: 1 << 16]
        expected = len(words) ** 2 / 2 / 2**32
        collisions = len(words) - len(np.unique(words))
        assert stats.poisson.sf(collisions - 1, expected) > LIMIT


@pytest.mark.parametrize("name", IMPLS)
def test_a_changed_key_bit_changes_half_of_the_bits(name):
    """Avalanche over keys: what children of neighbouring seeds rely on."""
    base = random.bits(random.key(0, impl=name), (4096,))
    for bit in (0, 1, 7, 31):
        other = random.bits(random.key(1 << bit, impl=name), (4096,))
        flipped = int(np.unpackbits((base ^ other).view(np.uint8)).sum())
        spread = abs(flipped - 65536) / np.sqrt(131072 / 4)
        assert 2 * stats.norm.sf(spread) > LIMIT


@pytest.mark.parametrize("rounds", [2, 4, 6])
def test_too_few_rounds_fail_this_gate(rounds):
    """The gate can fail: six rounds of Threefry2x32 do not mix."""
    assert pairs(draws(f"threefry2x32-{rounds}", "jax")) < LIMIT


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda k: random.normal(k, (COUNT,)), stats.norm.cdf),
        (lambda k: random.exponential(k, (COUNT,)), stats.expon.cdf),
        (lambda k: random.gumbel(k, (COUNT,)), stats.gumbel_r.cdf),
        (
            lambda k: random.truncated_normal(k, -1.0, 2.0, (COUNT,)),
            stats.truncnorm(-1.0, 2.0).cdf,
        ),
        (lambda k: random.uniform(k, (COUNT,), resolution="high"), stats.uniform.cdf),
        (
            lambda k: random.uniform(k, (COUNT,), "float64", -2.0, 3.0),
            stats.uniform(-2.0, 5.0).cdf,
        ),
    ],
    ids=["normal", "exponential", "gumbel", "truncated", "fine", "f64"],
)
def test_distributions_have_their_law(draw, law):
    assert stats.kstest(draw(random.key(5)), law).pvalue > LIMIT


def test_integers_are_alike_often():
    counts = np.bincount(random.randint(random.key(5), (COUNT,), 0, 37), minlength=37)
    assert stats.chisquare(counts).pvalue > LIMIT


def test_permutations_are_alike_often():
    keys = random.split(random.key(5), 6000)
    orders = ["".join(map(str, random.permutation(key, 4))) for key in keys]
    _, counts = np.unique(orders, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > LIMIT


def test_classes_come_with_their_probability():
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    drawn = random.categorical(random.key(5), logits, shape=(20000,))
    counts = np.bincount(drawn, minlength=4)
    assert stats.chisquare(counts, [2000, 4000, 6000, 8000]).pvalue > LIMIT

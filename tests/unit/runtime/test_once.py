"""Threads that ask first at the same time share what is computed."""

import functools
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tensorlang import once

COUNT = 8


class Thing:
    def __init__(self):
        self.made = []
        self.wait = Barrier(COUNT)

    def value(self):
        self.made.append(object())
        return self.made[-1]


def asked(ask, wait):
    def after():
        wait.wait()
        return ask()

    with ThreadPoolExecutor(COUNT) as pool:
        return [each.result() for each in [pool.submit(after) for _ in range(COUNT)]]


@pytest.mark.parametrize("slow", [0, 1e-3])
def test_an_attribute(slow):
    class Own(Thing):
        @once.cached_property
        def one(self):
            import time

            time.sleep(slow)
            return self.value()

    thing = Own()
    assert len(set(asked(lambda: thing.one, thing.wait))) == 1
    assert len(thing.made) == 1
    assert isinstance(Own.one, functools.cached_property)


def test_a_function():
    thing = Thing()

    @once.cache
    def one(number):
        import time

        time.sleep(1e-3)
        return (number, thing.value())

    assert len(set(asked(lambda: one(3), thing.wait))) == 1
    assert len(thing.made) == 1
    assert one(4) != one(3)
    one.cache_clear()
    one(3)
    assert len(thing.made) == 3

"""Names of shared values: given ones, of loads by buffer and place, else `t`."""

from __future__ import annotations

from tensorlang import ir


def text(body, *inputs):
    return str(ir.function("f", inputs, [ir.compute((4,), body, "y")]))


def test_a_load_used_twice_is_named_after_its_buffer_and_place():
    x, w = ir.placeholder((4,), "f32", "x"), ir.placeholder((4, 2), "f32", "w")
    shown = text(lambda i: x[i] * x[i] + w[i, 1] * w[i, 1], x, w)
    assert "x_i: f32 = x[vi]\n" in shown
    assert "w_i1: f32 = w[vi, 1]\n" in shown


def test_other_shared_values_are_t():
    x = ir.placeholder((8,), "f32", "x")

    def body(i):
        mean = x[i + 4] + x[i]
        return mean * mean + x[i + 4]

    shown = text(body, x)
    assert "t: f32 = x[vi + 4]\n" in shown
    assert "t_1: f32 = t + x[vi]\n" in shown


def test_a_name_may_be_only_for_what_is_shared():
    x = ir.placeholder((4,), "f32", "x")

    def body(i):
        twice = ir.named("twice", x[i] + 1.0, always=False)
        once = ir.named("once", twice * 3.0, always=False)
        bound = ir.named("bound", once + twice)
        return bound - 1.0

    shown = text(body, x)
    assert "twice: f32 = x[vi] + 1.0\n" in shown
    assert "bound: f32 = twice * 3.0 + twice\n" in shown
    assert "once" not in shown


def test_names_that_are_taken_are_numbered():
    x, y = ir.placeholder((4,), "f32", "x"), ir.placeholder((4,), "f32", "x_i")
    shown = text(lambda i: x[i] * x[i] + y[i], x, y)
    assert "x_i_1: f32 = x[vi]\n" in shown

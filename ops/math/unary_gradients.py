"""Gradients of the functions of one array."""

from __future__ import annotations

from typing import Final

from tensorlang.ops.fronts import unary_grad

_HERE: Final = "tensorlang.ops.math.unary_gradient_scalars"

negative_grad = unary_grad("math.negative", f"{_HERE}:negative", "-dy")
abs_grad = unary_grad("math.abs", f"{_HERE}:absolute", "dy times the sign of x")
sign_grad = unary_grad("math.sign", f"{_HERE}:nothing", "0 everywhere")
square_grad = unary_grad("math.square", f"{_HERE}:square", "2 x dy")
exp_grad = unary_grad("math.exp", f"{_HERE}:exp", "dy exp(x)")
expm1_grad = unary_grad("math.expm1", f"{_HERE}:exp", "dy exp(x)")
log_grad = unary_grad("math.log", f"{_HERE}:log", "dy / x")
log1p_grad = unary_grad("math.log1p", f"{_HERE}:log1p", "dy / (1 + x)")
sqrt_grad = unary_grad("math.sqrt", f"{_HERE}:sqrt", "dy / (2 sqrt(x))")
rsqrt_grad = unary_grad("math.rsqrt", f"{_HERE}:rsqrt", "-dy / (2 x sqrt(x))")
reciprocal_grad = unary_grad("math.reciprocal", f"{_HERE}:reciprocal", "-dy / x^2")
erf_grad = unary_grad("math.erf", f"{_HERE}:erf", "dy 2/sqrt(pi) exp(-x^2)")
sin_grad = unary_grad("math.sin", f"{_HERE}:sin", "dy cos(x)")
cos_grad = unary_grad("math.cos", f"{_HERE}:cos", "-dy sin(x)")
tanh_grad = unary_grad("math.tanh", f"{_HERE}:tanh", "dy (1 - tanh(x)^2)")
floor_grad = unary_grad("math.floor", f"{_HERE}:nothing", "0 everywhere")
ceil_grad = unary_grad("math.ceil", f"{_HERE}:nothing", "0 everywhere")

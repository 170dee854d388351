"""Elementwise functions, comparisons, reductions, scans, sorting, matmul and einsum."""

from tensorlang.ops.math.binary import add as add
from tensorlang.ops.math.binary import divide as divide
from tensorlang.ops.math.binary import floor_divide as floor_divide
from tensorlang.ops.math.binary import maximum as maximum
from tensorlang.ops.math.binary import maximum_grad as maximum_grad
from tensorlang.ops.math.binary import minimum as minimum
from tensorlang.ops.math.binary import minimum_grad as minimum_grad
from tensorlang.ops.math.binary import multiply as multiply
from tensorlang.ops.math.binary import power as power
from tensorlang.ops.math.binary import remainder as remainder
from tensorlang.ops.math.binary import subtract as subtract
from tensorlang.ops.math.bits import bitwise_and as bitwise_and
from tensorlang.ops.math.bits import bitwise_or as bitwise_or
from tensorlang.ops.math.bits import bitwise_xor as bitwise_xor
from tensorlang.ops.math.bits import invert as invert
from tensorlang.ops.math.bits import left_shift as left_shift
from tensorlang.ops.math.bits import right_shift as right_shift
from tensorlang.ops.math.comparison import equal as equal
from tensorlang.ops.math.comparison import greater as greater
from tensorlang.ops.math.comparison import greater_equal as greater_equal
from tensorlang.ops.math.comparison import isinf as isinf
from tensorlang.ops.math.comparison import isnan as isnan
from tensorlang.ops.math.comparison import less as less
from tensorlang.ops.math.comparison import less_equal as less_equal
from tensorlang.ops.math.comparison import logical_and as logical_and
from tensorlang.ops.math.comparison import logical_not as logical_not
from tensorlang.ops.math.comparison import logical_or as logical_or
from tensorlang.ops.math.comparison import logical_xor as logical_xor
from tensorlang.ops.math.comparison import not_equal as not_equal
from tensorlang.ops.math.conversion import cast as cast
from tensorlang.ops.math.einsum import einsum as einsum
from tensorlang.ops.math.matmul import matmul as matmul
from tensorlang.ops.math.reductions import all as all
from tensorlang.ops.math.reductions import any as any
from tensorlang.ops.math.reductions import argmax as argmax
from tensorlang.ops.math.reductions import argmin as argmin
from tensorlang.ops.math.reductions import logsumexp as logsumexp
from tensorlang.ops.math.reductions import max as max
from tensorlang.ops.math.reductions import max_grad as max_grad
from tensorlang.ops.math.reductions import mean as mean
from tensorlang.ops.math.reductions import min as min
from tensorlang.ops.math.reductions import min_grad as min_grad
from tensorlang.ops.math.reductions import prod as prod
from tensorlang.ops.math.reductions import sum as sum
from tensorlang.ops.math.reductions import var as var
from tensorlang.ops.math.scans import cumsum as cumsum
from tensorlang.ops.math.scans import cumsum_grad as cumsum_grad
from tensorlang.ops.math.selection import clip as clip
from tensorlang.ops.math.selection import clip_grad as clip_grad
from tensorlang.ops.math.selection import where as where
from tensorlang.ops.math.sorting import argsort as argsort
from tensorlang.ops.math.sorting import sort as sort
from tensorlang.ops.math.sorting import sort_grad as sort_grad
from tensorlang.ops.math.unary import abs as abs
from tensorlang.ops.math.unary import acos as acos
from tensorlang.ops.math.unary import acosh as acosh
from tensorlang.ops.math.unary import asin as asin
from tensorlang.ops.math.unary import asinh as asinh
from tensorlang.ops.math.unary import atan as atan
from tensorlang.ops.math.unary import atanh as atanh
from tensorlang.ops.math.unary import ceil as ceil
from tensorlang.ops.math.unary import cos as cos
from tensorlang.ops.math.unary import cosh as cosh
from tensorlang.ops.math.unary import erf as erf
from tensorlang.ops.math.unary import exp as exp
from tensorlang.ops.math.unary import expm1 as expm1
from tensorlang.ops.math.unary import floor as floor
from tensorlang.ops.math.unary import log as log
from tensorlang.ops.math.unary import log1p as log1p
from tensorlang.ops.math.unary import negative as negative
from tensorlang.ops.math.unary import reciprocal as reciprocal
from tensorlang.ops.math.unary import round as round
from tensorlang.ops.math.unary import rsqrt as rsqrt
from tensorlang.ops.math.unary import sign as sign
from tensorlang.ops.math.unary import sin as sin
from tensorlang.ops.math.unary import sinh as sinh
from tensorlang.ops.math.unary import sqrt as sqrt
from tensorlang.ops.math.unary import square as square
from tensorlang.ops.math.unary import tan as tan
from tensorlang.ops.math.unary import tanh as tanh
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import attribute


def __getattr__(name: str) -> Operator:  # derived gradients
    return attribute(__name__, name)

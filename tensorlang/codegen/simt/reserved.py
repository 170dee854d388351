"""Reserved names: keywords, types and functions of OpenCL C and CUDA C++."""

from __future__ import annotations

from typing import Final

_KEYWORDS: Final = """
    alignas alignof asm auto bool break case catch char class const constexpr continue
    default delete do double else enum explicit export extern false float for friend
    goto half if inline int kernel global local constant private long mutable namespace
    new operator protected public register restrict return short signed sizeof static
    struct switch template this throw true try typedef typename union unsigned using
    virtual void volatile while uchar ushort uint ulong size_t pipe event_t
    read_only write_only read_write uniform
"""
_TYPES: Final = "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64"
_FUNCTIONS: Final = """
    fma fmaf sqrt sqrtf floor ceil rint trunc copysign fabs isnan isinf rotate popcount
    clz mul_hi min max abs barrier fmin fmax vload2 vload4 vload8 vload16 vstore2
    vstore4 vstore8 vstore16 get_group_id get_local_id threadIdx blockIdx blockDim
    gridDim warpSize fault faults NAN INFINITY NULL main linux unix M_PI M_E
    step mix sign clamp dot cross length distance normalize all any select exp log sin
    cos tan tanh pow exp2 log2 log10 erf erfc round
"""
RESERVED: Final = tuple(
    sorted({*_KEYWORDS.split(), *_TYPES.split(), *_FUNCTIONS.split()})
)

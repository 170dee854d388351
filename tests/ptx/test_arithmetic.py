"""Each instruction of arithmetic by hand-written PTX, against NumPy or integers."""

from fractions import Fraction

import numpy as np
import pytest

RNG = np.random.default_rng(11)
WORDS = np.concatenate(
    [
        np.array([0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32),
        RNG.integers(0, 1 << 32, 119, np.uint32),
    ]
)
OTHERS = np.roll(WORDS, 37)
THIRDS = np.roll(WORDS, 71)


def signed(x, bits=32):
    return x - (1 << bits) if x >> bits - 1 else x


BINARY = {
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "mul.lo.s32": lambda a, b: a * b,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.hi.s32": lambda a, b: signed(a) * signed(b) >> 32,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "min.u32": min,
    "max.u32": max,
    "min.s32": lambda a, b: min(signed(a), signed(b)),
    "max.s32": lambda a, b: max(signed(a), signed(b)),
    "div.u32": lambda a, b: a // b if b else 0xFFFFFFFF,
    "rem.u32": lambda a, b: a % b if b else a,
    "div.s32": lambda a, b: int(Fraction(signed(a), signed(b))) if b else -1,
    "rem.s32": lambda a, b: (
        signed(a) - signed(b) * int(Fraction(signed(a), signed(b))) if b else a
    ),
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> min(b, 32),
    "shr.s32": lambda a, b: signed(a) >> min(b, 31),
}


@pytest.mark.parametrize("name", BINARY)
def test_two_words(applied, name):
    few = OTHERS % 40 if name.startswith("sh") else OTHERS
    made = applied(name, "u4", WORDS, few)
    wanted = [
        BINARY[name](int(a), int(b)) % (1 << 32)
        for a, b in zip(WORDS, few, strict=True)
    ]
    assert made.tolist() == wanted


def funnel(a, b, n):
    return (b << 32 | a) << n >> 32


THREE = {
    "mad.lo.u32": lambda a, b, c: a * b + c,
    "mad.hi.u32": lambda a, b, c: (a * b >> 32) + c,
    "sad.u32": lambda a, b, c: c + abs(a - b),
    "sad.s32": lambda a, b, c: c + abs(signed(a) - signed(b)),
    "shf.l.wrap.b32": lambda a, b, c: funnel(a, b, c % 32),
    "shf.r.wrap.b32": lambda a, b, c: (b << 32 | a) >> c % 32,
    "shf.l.clamp.b32": lambda a, b, c: funnel(a, b, min(c, 32)),
    "shf.r.clamp.b32": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    "bfe.u32": lambda a, b, c: (
        a >> b % 256 & ((1 << c % 256) - 1) if b % 256 < 32 else 0
    ),
    "bfe.s32": lambda a, b, c: field(signed(a), b % 256, c % 256),
}


def permuted(a, b, how):
    every, made = (b << 32 | a).to_bytes(8, "little"), []
    for byte in range(4):
        one = every[how >> 4 * byte & 7]
        sign = how >> 4 * byte & 8
        made.append((0xFF if one >> 7 else 0) if sign else one)
    return int.from_bytes(bytes(made), "little")


def field(a, at, n):
    """The ISA's loop: bits at, at + 1, ...; from the end on, the sign."""
    last = min(at + n - 1, 31)
    sign = a >> last & 1 if n else 0
    return sum(
        ((a >> at + i & 1) if i < n and at + i <= 31 else sign) << i for i in range(32)
    )


def dot(left, right, first=0, *, halves=True):
    """Products of parts of a and bytes of b: `left`, `right` tell whether of a sign."""
    bits = 16 if halves else 8

    def part(x, at, width, sign):
        value = x >> at & ((1 << width) - 1)
        return signed(value, width) if sign else value

    return lambda a, b, c: (
        c
        + sum(
            part(a, bits * n, bits, left) * part(b, 8 * (first + n), 8, right)
            for n in range(32 // bits)
        )
    )


THREE["prmt.b32"] = permuted
THREE["dp2a.lo.u32.u32"] = dot(left=False, right=False)
THREE["dp2a.hi.s32.u32"] = dot(left=True, right=False, first=2)
THREE["dp4a.u32.s32"] = dot(left=False, right=True, halves=False)


@pytest.mark.parametrize("name", THREE)
def test_three_words(applied, name):
    b, c = (OTHERS % 41, THIRDS % 43) if name.startswith("bfe") else (OTHERS, THIRDS)
    made = applied(name, "u4", WORDS, b, c)
    wanted = [
        THREE[name](*map(int, abc)) % (1 << 32) for abc in zip(WORDS, b, c, strict=True)
    ]
    assert made.tolist() == wanted


@pytest.mark.parametrize("table", [0x80, 0x96, 0xE8, 0xCA])
def test_lop3_has_a_table(run, table):
    made = np.zeros(128, np.uint32)
    body = f"""
        mul.wide.u32 %b1, %t, 4;
        add.u64 %b2, %a0, %b1; ld.global.u32 %w1, [%b2];
        add.u64 %b2, %a1, %b1; ld.global.u32 %w2, [%b2];
        add.u64 %b2, %a2, %b1; ld.global.u32 %w3, [%b2];
        lop3.b32 %w4, %w1, %w2, %w3, {table};
        add.u64 %b2, %a3, %b1; st.global.u32 [%b2], %w4;"""
    run(body, WORDS, OTHERS, THIRDS, made, threads=128)
    a, b, c = WORDS, OTHERS, THIRDS
    wanted = {0x80: a & b & c, 0x96: a ^ b ^ c, 0xE8: a & b | a & c | b & c}
    wanted[0xCA] = (a & b) | (~a & c)
    np.testing.assert_array_equal(made, wanted[table])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("popc.b32", lambda a: a.bit_count()),
        ("clz.b32", lambda a: 32 - a.bit_length()),
        ("brev.b32", lambda a: int(f"{a:032b}"[::-1], 2)),
        ("not.b32", lambda a: ~a % (1 << 32)),
        ("neg.s32", lambda a: -a % (1 << 32)),
        ("abs.s32", lambda a: abs(signed(a))),
    ],
)
def test_one_word(applied, name, wanted):
    assert applied(name, "u4", WORDS).tolist() == [wanted(int(a)) for a in WORDS]


LONG = np.concatenate(
    [
        np.array([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1], np.uint64),
        RNG.integers(0, 1 << 64, 59, np.uint64),
    ]
)
MORE = np.roll(LONG, 17)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mul.hi.u64", lambda a, b: a * b >> 64),
        ("mul.hi.s64", lambda a, b: signed(a, 64) * signed(b, 64) >> 64),
        ("mul.lo.s64", lambda a, b: a * b),
        ("min.s64", lambda a, b: min(signed(a, 64), signed(b, 64))),
    ],
)
def test_two_of_64_bits(applied, name, wanted):
    made = applied(name, "u8", LONG, MORE)
    pairs = zip(LONG, MORE, strict=True)
    assert made.tolist() == [wanted(int(a), int(b)) % (1 << 64) for a, b in pairs]


def test_fields_are_inserted(run):
    made = np.zeros(128, np.uint32)
    body = """
        mul.wide.u32 %b1, %t, 4;
        add.u64 %b2, %a0, %b1; ld.global.u32 %w1, [%b2];
        add.u64 %b2, %a1, %b1; ld.global.u32 %w2, [%b2];
        rem.u32 %w3, %t, 37;
        div.u32 %w4, %t, 4;
        bfi.b32 %w5, %w1, %w2, %w3, %w4;
        add.u64 %b2, %a2, %b1; st.global.u32 [%b2], %w5;"""
    run(body, WORDS, OTHERS, made, threads=128)
    for t, (a, b) in enumerate(zip(WORDS.tolist(), OTHERS.tolist(), strict=True)):
        at, count = t % 37, t // 4
        mask = ((1 << count) - 1) << at & 0xFFFFFFFF
        assert int(made[t]) == b & ~mask | a << at & mask


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_a_wide_product(applied, kind):
    made = applied(f"mul.wide.{kind}", "u8", WORDS, OTHERS)
    number = signed if kind == "s32" else int
    pairs = zip(WORDS.tolist(), OTHERS.tolist(), strict=True)
    assert made.tolist() == [number(a) * number(b) % (1 << 64) for a, b in pairs]

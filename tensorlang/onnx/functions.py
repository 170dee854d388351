"""Functions in opset 18 for operators that it lacks, stored in the file.

Any runtime for plain opset 18 can run them; our reader recognises them by name. Random
bits equal those of `tensorlang.ops.random`: Threefry2x32 with Add, BitShift and
BitwiseXor on words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tensorlang.onnx import cell_functions
from tensorlang.onnx.files import library

if TYPE_CHECKING:
    from onnx import FunctionProto

DOMAIN: Final = "tensorlang"
OPSET: Final = 18
NOTE: Final = "tensorlang"  # metadata key of our reader's note
TRAINING: Final = "training"  # the input that selects training mode
_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA


def _rounds() -> Iterator[str]:
    """The 20 rounds of Threefry2x32 (Salmon et al., 2011), one instruction per line."""
    at = 0
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            left, right = f"by{turn}", f"by{32 - turn}"
            yield f"a{at + 1} = Add(a{at}, b{at})"
            yield f'l{at} = BitShift <direction = "LEFT"> (b{at}, {left})'
            yield f'r{at} = BitShift <direction = "RIGHT"> (b{at}, {right})'
            yield f"t{at} = Add(l{at}, r{at})"  # no bit is set in both
            yield f"b{at + 1} = BitwiseXor(t{at}, a{at + 1})"
            at += 1
        first, second = (group + 1) % 3, (group + 2) % 3
        last = group == 4
        yield f"{'y0' if last else f'a{at + 1}'} = Add(a{at}, k{first})"
        yield f"s{group} = Add(k{second}, turn{group + 1})"
        yield f"{'y1' if last else f'b{at + 1}'} = Add(b{at}, s{group})"
        at += 1


def _word(name: str, value: int) -> str:
    return f"{name} = Constant <value = uint32[1] {{{value}}}> ()"


def _threefry() -> str:
    shifts = sorted({t for group in _ROTATIONS for r in group for t in (r, 32 - r)})
    lines = [_word(f"by{by}", by) for by in shifts]
    lines += [_word(f"turn{n}", n) for n in range(1, 6)]
    lines += [_word("parity", _PARITY), *_ELEMENTS]
    lines += ["mixed = BitwiseXor(k0, k1)", "k2 = BitwiseXor(mixed, parity)"]
    lines += ["zero = BitwiseXor(low, low)", "a0 = Add(zero, k0)", "b0 = Add(low, k1)"]
    return (
        "threefry2x32 (key, low) => (y0, y1) {" + "\n".join([*lines, *_rounds()]) + "}"
    )


_ELEMENTS: Final = (
    "first = Constant <value = int64[1] {0}> ()",
    "second = Constant <value = int64[1] {1}> ()",
    "k0 = Gather(key, first)",
    "k1 = Gather(key, second)",
)
_COUNTED: Final = """
  start = Constant <value_int = 0> ()
  step = Constant <value_int = 1> ()
  index = Range(start, count, step)
  low = Cast <to = 12> (index)
  w0, w1 = tensorlang.threefry2x32(key, low)
"""

_DROPOUT: Final = "<rate: string = @rate, limit: int = @limit, keep: float = @keep>"

TEXTS: Final[dict[str, str]] = {
    "threefry2x32": _threefry(),
    # child i of a key is H(key, i)
    "split": f"""split <num> (key) => (keys) {{
  count = Constant <value_int: int = @num> ()
  {_COUNTED}
  last = Constant <value = int64[1] {{1}}> ()
  u0 = Unsqueeze(w0, last)
  u1 = Unsqueeze(w1, last)
  keys = Concat <axis = 1> (u0, u1)
}}""",
    # `limit` is the threshold of kept bits, `keep` the divisor; `rate` is for readers
    "dropout": f"""dropout <rate, limit, keep> (x, key, training) => (y) {{
  whole = Constant <value_int: int = @limit> ()
  limit = Cast <to = 12> (whole)
  share = Constant <value_float: float = @keep> ()
  y = If (training) <
    then_branch = dropped () => (z) {{
      count = Size(x)
      {_COUNTED}
      bits = BitwiseXor(w0, w1)
      kept = LessOrEqual(bits, limit)
      shape = Shape(x)
      mask = Reshape(kept, shape)
      divisor = CastLike(share, x)
      scaled = Div(x, divisor)
      none = Constant <value_float = 0.0> ()
      zero = CastLike(none, x)
      z = Where(mask, scaled, zero)
    }},
    else_branch = used () => (z) {{ z = Identity(x) }}
  >
}}""",
    "dropout_train": f"""dropout_train <rate, limit, keep>
      (x, state, training) => (y, after) {{
  keys = tensorlang.split <num = 2> (state)
  first = Constant <value_int = 0> ()
  second = Constant <value_int = 1> ()
  next = Gather(keys, first)
  key = Gather(keys, second)
  y = tensorlang.dropout {_DROPOUT}
    (x, key, training)
  after = Where(training, next, state)
}}""",
    "batch_norm_train": """batch_norm_train <axes, inner, momentum, eps>
      (x, mean, var, weight, bias, training) => (y, next_mean, next_var) {
  over = Constant <value_ints: ints = @axes> ()
  around = Constant <value_ints: ints = @inner> ()
  small = Constant <value_float: float = @eps> ()
  part = Constant <value_float: float = @momentum> ()
  epsilon = CastLike(small, x)
  share = CastLike(part, x)
  one = Constant <value_int = 1> ()
  ones = CastLike(one, x)
  own = ReduceMean <keepdims = 0> (x, over)
  own_wide = Unsqueeze(own, around)
  away = Sub(x, own_wide)
  squares = Mul(away, away)
  spread = ReduceMean <keepdims = 0> (squares, over)
  all = Size(x)
  channels = Size(own)
  each = Div(all, channels)
  count = CastLike(each, x)
  less = Sub(count, ones)
  total = Mul(spread, count)
  unbiased = Div(total, less)
  rest = Sub(ones, share)
  kept_mean = Mul(mean, rest)
  more_mean = Mul(own, share)
  moved_mean = Add(kept_mean, more_mean)
  kept_var = Mul(var, rest)
  more_var = Mul(unbiased, share)
  moved_var = Add(kept_var, more_var)
  next_mean = Where(training, moved_mean, mean)
  next_var = Where(training, moved_var, var)
  m = Where(training, own, mean)
  v = Where(training, spread, var)
  safe = Add(v, epsilon)
  root = Sqrt(safe)
  scale = Div(weight, root)
  m_wide = Unsqueeze(m, around)
  s_wide = Unsqueeze(scale, around)
  b_wide = Unsqueeze(bias, around)
  centred = Sub(x, m_wide)
  scaled = Mul(centred, s_wide)
  y = Add(scaled, b_wide)
}""",
    "dense": """dense (x, w, b) => (y) {
  turned = Transpose <perm = [1, 0]> (w)
  product = MatMul(x, turned)
  y = Add(product, b)
}""",
    "dense_without_bias": """dense_without_bias (x, w) => (y) {
  turned = Transpose <perm = [1, 0]> (w)
  y = MatMul(x, turned)
}""",
    "gelu": """gelu (x) => (y) {
  r = Constant <value = double {0.7071067811865476}> ()
  o = Constant <value = double {1.0}> ()
  h = Constant <value = double {0.5}> ()
  root = CastLike(r, x)
  one = CastLike(o, x)
  half = CastLike(h, x)
  scaled = Mul(x, root)
  error = Erf(scaled)
  above = Add(error, one)
  share = Mul(x, half)
  y = Mul(share, above)
}""",
    "gelu_tanh": """gelu_tanh (x) => (y) {
  r = Constant <value = double {0.7978845608028654}> ()
  c = Constant <value = double {0.044715}> ()
  o = Constant <value = double {1.0}> ()
  h = Constant <value = double {0.5}> ()
  root = CastLike(r, x)
  cubic = CastLike(c, x)
  one = CastLike(o, x)
  half = CastLike(h, x)
  square = Mul(x, x)
  cube = Mul(square, x)
  part = Mul(cube, cubic)
  sum = Add(x, part)
  scaled = Mul(sum, root)
  bent = Tanh(scaled)
  above = Add(bent, one)
  share = Mul(x, half)
  y = Mul(share, above)
}""",
    "expm1": """expm1 (x) => (y) {
  o = Constant <value = double {1.0}> ()
  one = CastLike(o, x)
  power = Exp(x)
  y = Sub(power, one)
}""",
    "log1p": """log1p (x) => (y) {
  o = Constant <value = double {1.0}> ()
  one = CastLike(o, x)
  above = Add(x, one)
  y = Log(above)
}""",
    "silu": """silu (x) => (y) {
  gate = Sigmoid(x)
  y = Mul(x, gate)
}""",
    "rms_norm": """rms_norm <eps> (x, weight) => (y) {
  small = Constant <value_float: float = @eps> ()
  epsilon = CastLike(small, x)
  over = Constant <value = int64[1] {-1}> ()
  squares = Mul(x, x)
  mean = ReduceMean <keepdims = 1> (squares, over)
  safe = Add(mean, epsilon)
  root = Sqrt(safe)
  normal = Div(x, root)
  y = Mul(normal, weight)
}""",
} | cell_functions.TEXTS
_USES: Final = {
    "split": ("threefry2x32",),
    "dropout": ("threefry2x32",),
    "dropout_train": ("dropout", "split", "threefry2x32"),
}


def functions(names: Iterator[str] | set[str]) -> list[FunctionProto]:
    """ONNX functions of these names and the functions that they call."""
    wanted = {use for name in names for use in (name, *_USES.get(name, ()))}
    head = f'<opset_import: ["" : {OPSET}, "{DOMAIN}" : 1], domain: "{DOMAIN}">\n'
    return [
        library().parser.parse_function(head + TEXTS[name])
        for name in TEXTS
        if name in wanted
    ]

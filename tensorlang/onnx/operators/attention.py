"""Attention and rotary embedding."""

from __future__ import annotations

from tensorlang.errors import ShapeError
from tensorlang.graph.values import Tensor
from tensorlang.onnx.calls import Call, Operand
from tensorlang.onnx.expansion import expanded
from tensorlang.onnx.operators.data_movement import gather
from tensorlang.onnx.reading import Results, reads
from tensorlang.ops import nn

_NO_WINDOW = -1


@reads("Attention")
def attention(  # noqa: PLR0917 - ONNX's order
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Operand | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Operand | None = None,
    *,
    is_causal: bool,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
    left_window_size: int = _NO_WINDOW,
    right_window_size: int = _NO_WINDOW,
) -> Results:
    """Attention; with masks, caps or windows by the function that ONNX has for it."""
    del qk_matmul_output_mode, softmax_precision
    own = (
        (attn_mask, nonpad_kv_seqlen) != (None, None)
        or (past_key is None) != (past_value is None)
        or softcap
        or (left_window_size, right_window_size) != (_NO_WINDOW, _NO_WINDOW)
        or any(call.outputs[3:])
        or (is_causal and past_key is not None and q.shape[-2] != k.shape[-2])
        or (is_causal and past_key is not None and call.version < 24)
    )
    if own or {q.ndim, k.ndim, v.ndim} - {3, 4}:
        return expanded(call)
    rows = q.ndim == 3
    q, k, v = (
        _heads(x, count) if rows else x
        for x, count in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
    )
    if past_key is not None:
        k, v = (nn.concatenate([a, b], 2) for a, b in ((past_key, k), (past_value, v)))
    causal = "lower_right" if is_causal and past_key is not None else is_causal
    y = nn.attention(q, k, v, causal, scale)
    if rows:
        y = nn.transpose(y, (0, 2, 1, 3))
        y = nn.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))
    return y, k, v


def _heads(x: Tensor, count: int) -> Tensor:
    """`[batch, length, width]` as `[batch, heads, length, depth]`."""
    if (
        x.ndim != 3
        or count < 1
        or not isinstance(x.shape[2], int)
        or x.shape[2] % count
    ):
        raise ShapeError(f"{count} heads of {x.spec}")
    parts = nn.reshape(x, (*x.shape[:2], count, x.shape[2] // count))
    made: Tensor = nn.transpose(parts, (0, 2, 1, 3))
    return made


@reads("RotaryEmbedding")
def rotary(
    call: Call,
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Operand | None = None,
    *,
    interleaved: bool,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Results:
    """Rotary embedding, of the first numbers of each head if so many are given."""
    wide = _heads(x, num_heads) if x.ndim == 3 else x
    cos, sin = (
        table if position_ids is None else gather(call, table, position_ids, axis=0)
        for table in (cos_cache, sin_cache)
    )
    count = rotary_embedding_dim or wide.shape[-1]
    made = nn.rotary(wide[..., :count], cos, sin, interleaved)
    if count != wide.shape[-1]:
        made = nn.concatenate([made, wide[..., count:]], -1)
    if x.ndim == 3:
        made = nn.reshape(nn.transpose(made, (0, 2, 1, 3)), x.shape)
    return made

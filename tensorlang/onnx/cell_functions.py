"""Cells of recurrent networks as functions stored in a file, by the order of gates."""

from __future__ import annotations

from typing import Final


def _lstm(order: str) -> str:
    return f"""lstm_cell_{order} (gates, c) => (h, state) {{
  {", ".join(order)} = Split <axis = 1, num_outputs = 4> (gates)
  forget = Sigmoid(f)
  enter = Sigmoid(i)
  leave = Sigmoid(o)
  new = Tanh(g)
  kept = Mul(forget, c)
  added = Mul(enter, new)
  state = Add(kept, added)
  bent = Tanh(state)
  h = Mul(leave, bent)
}}"""


def _gru(order: str) -> str:
    first, second = (", ".join(f"{of}_{gate}" for gate in order) for of in "xh")
    return f"""gru_cell_{order} (x_gates, h_gates, h) => (y) {{
  {first} = Split <axis = 1, num_outputs = 3> (x_gates)
  {second} = Split <axis = 1, num_outputs = 3> (h_gates)
  of_r = Add(x_r, h_r)
  of_z = Add(x_z, h_z)
  r = Sigmoid(of_r)
  z = Sigmoid(of_z)
  before = Mul(r, h_n)
  of_n = Add(x_n, before)
  n = Tanh(of_n)
  change = Sub(h, n)
  kept = Mul(z, change)
  y = Add(n, kept)
}}"""


# the orders of gates: PyTorch's, and ONNX's
ORDERS: Final = {"lstm_cell": ("ifgo", "iofg"), "gru_cell": ("rzn", "zrn")}
TEXTS: Final = {
    f"{name}_{order}": text(order)
    for name, text in (("lstm_cell", _lstm), ("gru_cell", _gru))
    for order in ORDERS[name]
}

"""Operators of neural networks."""

from tensorlang.ops.nn.activation import gelu, relu
from tensorlang.ops.nn.dropout import dropout, dropout_grad, dropout_train

__all__ = ["dropout", "dropout_grad", "dropout_train", "gelu", "relu"]

"""Neural network operators."""

from tensorlang.ops.calls.packed_weights import PackedWeight as PackedWeight
from tensorlang.ops.nn.activation import gelu as gelu
from tensorlang.ops.nn.activation import hard_swish as hard_swish
from tensorlang.ops.nn.activation import leaky_relu as leaky_relu
from tensorlang.ops.nn.activation import relu as relu
from tensorlang.ops.nn.activation import relu_grad as relu_grad
from tensorlang.ops.nn.activation import sigmoid as sigmoid
from tensorlang.ops.nn.activation import silu as silu
from tensorlang.ops.nn.activation import softplus as softplus
from tensorlang.ops.nn.activation import tanh as tanh
from tensorlang.ops.nn.attention import attention as attention
from tensorlang.ops.nn.batch_norm import batch_norm as batch_norm
from tensorlang.ops.nn.batch_norm import batch_norm_grad as batch_norm_grad
from tensorlang.ops.nn.batch_norm import batch_norm_train as batch_norm_train
from tensorlang.ops.nn.batch_norm import batch_norm_train_grad as batch_norm_train_grad
from tensorlang.ops.nn.convolution import conv1d as conv1d
from tensorlang.ops.nn.convolution import conv1d_grad as conv1d_grad
from tensorlang.ops.nn.convolution import conv1d_grad_data as conv1d_grad_data
from tensorlang.ops.nn.convolution import conv1d_grad_weight as conv1d_grad_weight
from tensorlang.ops.nn.convolution import conv1d_transpose as conv1d_transpose
from tensorlang.ops.nn.convolution import conv1d_transpose_grad as conv1d_transpose_grad
from tensorlang.ops.nn.convolution import conv2d as conv2d
from tensorlang.ops.nn.convolution import conv2d_grad as conv2d_grad
from tensorlang.ops.nn.convolution import conv2d_grad_data as conv2d_grad_data
from tensorlang.ops.nn.convolution import conv2d_grad_weight as conv2d_grad_weight
from tensorlang.ops.nn.convolution import conv2d_transpose as conv2d_transpose
from tensorlang.ops.nn.convolution import conv2d_transpose_grad as conv2d_transpose_grad
from tensorlang.ops.nn.convolution import conv3d as conv3d
from tensorlang.ops.nn.convolution import conv3d_grad as conv3d_grad
from tensorlang.ops.nn.convolution import conv3d_grad_data as conv3d_grad_data
from tensorlang.ops.nn.convolution import conv3d_grad_weight as conv3d_grad_weight
from tensorlang.ops.nn.convolution import conv3d_transpose as conv3d_transpose
from tensorlang.ops.nn.convolution import conv3d_transpose_grad as conv3d_transpose_grad
from tensorlang.ops.nn.cross_entropy import cross_entropy as cross_entropy
from tensorlang.ops.nn.cross_entropy import cross_entropy_grad as cross_entropy_grad
from tensorlang.ops.nn.dense import dense as dense
from tensorlang.ops.nn.dense import dense_grad as dense_grad
from tensorlang.ops.nn.dense_int4 import dense_int4 as dense_int4
from tensorlang.ops.nn.dense_int8 import dense_int8 as dense_int8
from tensorlang.ops.nn.dropout import dropout as dropout
from tensorlang.ops.nn.dropout import dropout_grad as dropout_grad
from tensorlang.ops.nn.dropout import dropout_train as dropout_train
from tensorlang.ops.nn.embedding import embedding as embedding
from tensorlang.ops.nn.embedding import embedding_grad as embedding_grad
from tensorlang.ops.nn.embedding import scatter as scatter
from tensorlang.ops.nn.group_norm import group_norm as group_norm
from tensorlang.ops.nn.joining import concatenate as concatenate
from tensorlang.ops.nn.joining import pad as pad
from tensorlang.ops.nn.joining import split as split
from tensorlang.ops.nn.joining import stack as stack
from tensorlang.ops.nn.movement import batch_flatten as batch_flatten
from tensorlang.ops.nn.movement import reshape as reshape
from tensorlang.ops.nn.movement import transpose as transpose
from tensorlang.ops.nn.mse import mse as mse
from tensorlang.ops.nn.mse import mse_grad as mse_grad
from tensorlang.ops.nn.norms import layer_norm as layer_norm
from tensorlang.ops.nn.norms import layer_norm_grad as layer_norm_grad
from tensorlang.ops.nn.norms import rms_norm as rms_norm
from tensorlang.ops.nn.packing import prepack as prepack
from tensorlang.ops.nn.pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from tensorlang.ops.nn.pooling import (
    adaptive_avg_pool1d_grad as adaptive_avg_pool1d_grad,
)
from tensorlang.ops.nn.pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from tensorlang.ops.nn.pooling import (
    adaptive_avg_pool2d_grad as adaptive_avg_pool2d_grad,
)
from tensorlang.ops.nn.pooling import adaptive_avg_pool3d as adaptive_avg_pool3d
from tensorlang.ops.nn.pooling import (
    adaptive_avg_pool3d_grad as adaptive_avg_pool3d_grad,
)
from tensorlang.ops.nn.pooling import adaptive_max_pool1d as adaptive_max_pool1d
from tensorlang.ops.nn.pooling import (
    adaptive_max_pool1d_grad as adaptive_max_pool1d_grad,
)
from tensorlang.ops.nn.pooling import adaptive_max_pool2d as adaptive_max_pool2d
from tensorlang.ops.nn.pooling import (
    adaptive_max_pool2d_grad as adaptive_max_pool2d_grad,
)
from tensorlang.ops.nn.pooling import adaptive_max_pool3d as adaptive_max_pool3d
from tensorlang.ops.nn.pooling import (
    adaptive_max_pool3d_grad as adaptive_max_pool3d_grad,
)
from tensorlang.ops.nn.pooling import avg_pool1d as avg_pool1d
from tensorlang.ops.nn.pooling import avg_pool2d as avg_pool2d
from tensorlang.ops.nn.pooling import avg_pool3d as avg_pool3d
from tensorlang.ops.nn.pooling import global_avg_pool as global_avg_pool
from tensorlang.ops.nn.pooling import global_max_pool as global_max_pool
from tensorlang.ops.nn.pooling import global_max_pool_grad as global_max_pool_grad
from tensorlang.ops.nn.pooling import max_pool1d as max_pool1d
from tensorlang.ops.nn.pooling import max_pool1d_grad as max_pool1d_grad
from tensorlang.ops.nn.pooling import max_pool2d as max_pool2d
from tensorlang.ops.nn.pooling import max_pool2d_grad as max_pool2d_grad
from tensorlang.ops.nn.pooling import max_pool3d as max_pool3d
from tensorlang.ops.nn.pooling import max_pool3d_grad as max_pool3d_grad
from tensorlang.ops.nn.quantizing import dequantize as dequantize
from tensorlang.ops.nn.quantizing import quantize as quantize
from tensorlang.ops.nn.recurrent import gru as gru
from tensorlang.ops.nn.recurrent import gru_cell as gru_cell
from tensorlang.ops.nn.recurrent import lstm as lstm
from tensorlang.ops.nn.recurrent import lstm_cell as lstm_cell
from tensorlang.ops.nn.recurrent import rnn as rnn
from tensorlang.ops.nn.recurrent_gradient import gru_gates_grad as gru_gates_grad
from tensorlang.ops.nn.recurrent_gradient import lstm_gates_grad as lstm_gates_grad
from tensorlang.ops.nn.resampling import resample as resample
from tensorlang.ops.nn.rotary import rotary as rotary
from tensorlang.ops.nn.slicing import slice as slice
from tensorlang.ops.nn.softmax import log_softmax as log_softmax
from tensorlang.ops.nn.softmax import softmax as softmax
from tensorlang.ops.nn.winograd_packing import PackedWindows as PackedWindows
from tensorlang.ops.nn.winograd_packing import conv2d_winograd as conv2d_winograd
from tensorlang.ops.nn.winograd_packing import (
    conv2d_winograd_weight as conv2d_winograd_weight,
)
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import attribute


def __getattr__(name: str) -> Operator:  # derived gradients
    return attribute(__name__, name)

"""Readers and writers of operators."""

from tensorlang.onnx.operators import activations as activations
from tensorlang.onnx.operators import attention as attention
from tensorlang.onnx.operators import by_data as by_data
from tensorlang.onnx.operators import constants as constants
from tensorlang.onnx.operators import data_movement as data_movement
from tensorlang.onnx.operators import elementwise as elementwise
from tensorlang.onnx.operators import form_writing as form_writing
from tensorlang.onnx.operators import forms as forms
from tensorlang.onnx.operators import fourier as fourier
from tensorlang.onnx.operators import gathering as gathering
from tensorlang.onnx.operators import images as images
from tensorlang.onnx.operators import norms as norms
from tensorlang.onnx.operators import products as products
from tensorlang.onnx.operators import quantizing as quantizing
from tensorlang.onnx.operators import recurrent as recurrent
from tensorlang.onnx.operators import reductions as reductions
from tensorlang.onnx.operators import resizing as resizing
from tensorlang.onnx.operators import sampling as sampling
from tensorlang.onnx.operators import scans as scans
from tensorlang.onnx.operators import sequences as sequences
from tensorlang.onnx.operators import shapes as shapes
from tensorlang.onnx.operators import stored_functions as stored_functions
from tensorlang.onnx.operators import windows as windows

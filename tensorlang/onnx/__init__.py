"""ONNX export in plain opset 18, and ONNX import.

Both are one call:

    from tensorlang import onnx

    onnx.save(network, "net.onnx")       # what layers.Model.save calls
    program = onnx.load("net.onnx")      # a function of symbolic tensors, like a layer
"""

from tensorlang.onnx.external_data import read, save
from tensorlang.onnx.files import written_whole
from tensorlang.onnx.programs import Program, load
from tensorlang.onnx.writing import model_of

__all__ = ["Program", "load", "model_of", "read", "save", "written_whole"]

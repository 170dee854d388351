"""Programs as ONNX files: written in plain opset 18, and strangers' files read.

Both ways are one call:

    from tensorlang import onnx

    onnx.save(network, "net.onnx")       # what layers.Model.save calls
    program = onnx.load("net.onnx")      # a function of symbolic tensors, as a layer
"""

from tensorlang.onnx.files import written_whole
from tensorlang.onnx.outside import read, save
from tensorlang.onnx.programs import Program, load
from tensorlang.onnx.writing import model_of

__all__ = ["Program", "load", "model_of", "read", "save", "written_whole"]

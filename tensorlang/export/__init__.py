"""Export of operators and networks to C: kernels that run without Python.

    export_operator(nn.dense, (workload,), "dense")      # a folder: dense.h, libdense.a
    model.export("lenet", batch=32)                      # a network, with its weights

The folder has a header, object code, a launcher in C, a program that runs it, and what
a C compiler and CMake make of them. `docs/export.md` leads through it.
"""

from tensorlang.export.cuda import export_cuda
from tensorlang.export.files import Exported
from tensorlang.export.machines import Machine, machines
from tensorlang.export.networks import export_graph, export_network
from tensorlang.export.operators import export_operator, numbers

__all__ = [
    "Exported",
    "Machine",
    "export_cuda",
    "export_graph",
    "export_network",
    "export_operator",
    "machines",
    "numbers",
]

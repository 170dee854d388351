"""Export of an operator for NVIDIA GPUs: cubins, and a launcher on the driver API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensorlang.codegen.simt import host
from tensorlang.errors import ArgumentError
from tensorlang.export.files import Exported, constant_text, put_objects, put_texts
from tensorlang.export.library import library_name
from tensorlang.export.operators import Exporter, fixed_numbers
from tensorlang.export.sizes import interface
from tensorlang.frozen import frozen
from tensorlang.runtime.cpu import launcher, launcher_text, llvm
from tensorlang.runtime.cuda import backend
from tensorlang.runtime.describing import signature_of

if TYPE_CHECKING:
    from tensorlang import ir
    from tensorlang.ops import Operator
    from tensorlang.runtime.host_program import Data
    from tensorlang.runtime.signature import Signature
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

_FILES: Final = {
    "{}.h": "export_cuda.h.j2",
    "{}.c": "export_cuda.c.j2",
    "CMakeLists.txt": "export_cuda_cmake.j2",
}


@frozen(eq=False)
class CudaKernel:
    """A kernel for an architecture."""

    symbol: str  # begins the names of its symbols
    signature: Signature  # its buffers and scalars
    program: Data  # its host program
    # object code by name: of the cubin, and of the host program
    objects: Mapping[str, bytes]

    @property
    def launches(self) -> Sequence[Data]:
        """Its launches: names, and bytes of dynamic shared memory."""
        found: Sequence[Data] = self.program["launches"]
        return found

    @property
    def temporaries(self) -> int:
        """The number of arrays that launches pass on."""
        return len(launcher_text.temporaries(self.program))

    @property
    def checks(self) -> bool:
        """Whether it checks the contents of arrays."""
        return any(["faults"] in launch["args"] for launch in self.launches)

    @property
    def has_maps(self) -> bool:
        """Whether it takes tensor maps."""
        return launcher.has_maps(self.program)


@frozen
class _Gpu:
    """An architecture; a cubin runs on GPUs of its major version, from its minor on."""

    name: str
    target: Target

    @property
    def capability(self) -> tuple[int, int]:
        """Its compute capability."""
        number = int("".join(filter(str.isdigit, self.name)))
        return number // 10, number % 10

    @property
    def is_exact(self) -> bool:
        """Whether code for it runs on no other."""
        return self.name.endswith("a")


class _CudaKernels:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.made: list[CudaKernel] = []

    def kernel(self, function: ir.Function, machine: _Gpu) -> CudaKernel:
        """The kernel of a scheduled function."""
        symbol, signature = f"{self._prefix}_{len(self.made)}", signature_of(function)
        lowered = backend.lower(function, machine.target)
        source = backend.render(lowered, machine.target, {})
        cubin, _ = backend.compiled(source, lowered, signature, machine.target)
        program = host.host_program(lowered)
        text = launcher_text.launcher_text(symbol, signature, program)
        code = f"{symbol}_{machine.name}"
        objects = {
            f"{code}_cubin": llvm.compile_quickly(
                constant_text(f"{symbol}_cubin", cubin)
            ),
            f"{code}_launcher": llvm.compile_quickly(text),
        }
        self.made.append(CudaKernel(symbol, signature, program, objects))
        return self.made[-1]


def export_cuda(
    op: Operator,
    given: Sequence[Workload],
    folder: str | Path,
    *,
    on: Sequence[Target],
    name: str = "",
    values: Mapping[str, object] | None = None,
) -> Exported:
    """Export an operator for GPUs to a folder.

    Args:
        op: The operator.
        given: The workloads it is called with, as for `export_operator`.
        folder: Where to write.
        on: The architectures, such as those of `cuda:sm_90a`; no GPU is needed.
        name: Begins the names of files and functions; by default the operator's.
        values: The numbers that are fixed.

    Raises:
        ArgumentError: as for `export_operator`, or a target is no GPU of NVIDIA.
        CodegenError: an architecture cannot express the kernel.
        TargetError: a compiler is missing.
    """
    if not on or any(target.kind != "cuda" for target in on):
        raise ArgumentError("give targets such as cuda:sm_90a to export for CUDA")
    called = library_name(name or op.id.replace(".", "_"))
    kernels = _CudaKernels(called)
    fixed = fixed_numbers(op, given[0], values or {})
    exporter = Exporter(op, interface(op, given), kernels.kernel, fixed)
    gpus = [_Gpu(target.arch, target) for target in dict.fromkeys(on)]
    programs = exporter.programs(given, gpus)
    lib = exporter.library(called, given, programs, kernels.made[0].signature)
    codes = {n: code for kernel in kernels.made for n, code in kernel.objects.items()}
    texts = {file.format(lib.name): template for file, template in _FILES.items()}
    objects = put_objects(codes, Path(folder), texts)
    put_texts(
        lib,
        texts,
        Path(folder),
        machines=", ".join(gpu.name for gpu in gpus),
        kernels=kernels.made,
        objects=[str(path.relative_to(folder)) for path in objects],
        given=[
            *(f"int64_t {name}" for name in lib.sizes),
            *(f"CUdeviceptr {array.name}" for array in lib.arrays),
            *(f"{scalar.c_type} {scalar.name}" for scalar in lib.scalars),
        ],
        zeros=[*lib.sizes, *["0"] * (len(lib.arrays) + len(lib.scalars))],
        most=max(len(kernel.launches) for kernel in kernels.made),
        checks=any(kernel.checks for kernel in kernels.made),
        too_large=launcher_text.TOO_LARGE,
    )
    return Exported(Path(folder), lib.name, objects)

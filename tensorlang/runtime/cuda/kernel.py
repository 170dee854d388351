"""A kernel on a GPU: loads its module and launches it on the callers' streams."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from tensorlang.errors import ArgumentError, DeviceError, ShapeError, TargetError
from tensorlang.once import cached_property
from tensorlang.runtime import calling, host_program
from tensorlang.runtime.arrays.device_arrays import DeviceArray
from tensorlang.runtime.arrays.foreign_arrays import as_placed
from tensorlang.runtime.cpu import launcher, launcher_text
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import multi_tensor as cuda_multi_tensor
from tensorlang.runtime.cuda import sets as cuda_sets
from tensorlang.runtime.cuda import tensor_call, toolchain
from tensorlang.runtime.cuda import transfers as cuda_transfers
from tensorlang.runtime.cuda.cached import CachedLaunch, LaunchCache
from tensorlang.runtime.cuda.faults import Faults, faults_of
from tensorlang.runtime.cuda.graphs import Graphs
from tensorlang.runtime.cuda.lifetimes import until_done
from tensorlang.runtime.cuda.module import Module, workspace
from tensorlang.runtime.cuda.results import current_stream
from tensorlang.runtime.device_kernel import DeviceKernel
from tensorlang.runtime.kernel import Artifact
from tensorlang.targets import Target

_ROW_BYTES: Final = 16  # what a row in a tensor map is a multiple of


class CudaKernel(DeviceKernel):
    """A kernel compiled for a GPU; see `Kernel`.

    It runs on the stream of the caller's arrays, asynchronously except where outputs
    are copied back to host memory; then it raises what its checks report, else a later
    call does: `tensorlang.runtime.cuda.faults`. A GPU array that is misaligned for the
    kernel's vector accesses goes through an aligned copy: `cuda_transfers`. A call on a
    stream that is being captured becomes part of that graph.

    Attributes:
        ptx: PTX, from which ptxas made the machine code.
        alignments: Required alignment of each array's address, in bytes.
        checks: Whether it may report faults.
        has_temporaries: Whether its launches pass temporary arrays on.
        has_call: Whether calls with PyTorch tensors are compiled: `tensor_call`.
    """

    def __init__(self, artifact: Artifact, target: Target) -> None:
        super().__init__(artifact, target)
        self._host, self._code = launcher.unpacked(artifact.wrapper_code)
        self.checks = tensor_call.reports(self._host)
        self.alignments: Sequence[int] = self._host["alignments"]
        self.has_temporaries = bool(launcher_text.temporaries(self._host))
        self.has_call = tensor_call.serves(artifact.signature, self._host)
        self._cache = LaunchCache(self)
        self.launch = self._quick
        alone = not self.checks and not self.has_temporaries
        if alone and cuda_sets.takes_sets(artifact.signature):
            self.each = self._each

    @cached_property
    def ptx(self) -> str:
        """PTX of the source."""
        return toolchain.ptx_of(self.source, self.target.arch)

    @cached_property
    def asm(self) -> str:
        """SASS: disassembly of the machine code."""
        return toolchain.sass_of(self.artifact.object_code)

    @property
    def resources(self) -> Mapping[str, int]:
        """Launches, registers, and bytes of spills, stack, shared memory and code."""
        return {
            "launches": len(self._host["launches"]),
            **self._host["resources"],
            "object_bytes": len(self.artifact.object_code),
        }

    @cached_property
    def launcher(self) -> launcher.Launcher:
        """The compiled host program, which starts all launches of a call."""
        return launcher.Launcher(
            self.name, self._host, self._code, called=self.has_call
        )

    @cached_property
    def encode(self) -> int:
        """Address of `cuTensorMapEncodeTiled`; 0 if there are no tensor maps."""
        if not self.launcher.has_maps:
            return 0
        return cuda_driver.address_of("cuTensorMapEncodeTiled")

    def _check_target(self) -> None:
        """Check that the kernel is for a GPU that is here."""
        if self.target.index < 0:
            raise TargetError(
                f"{self.name} is compiled for {self.target.arch} without a GPU; use "
                "'llvm' or 'opencl', or 'cuda' where there is one"
            )

    @cached_property
    def module(self) -> Module:
        """The machine code loaded into the GPU's context, at the first call.

        Raises:
            TargetError: the target is an architecture without a GPU.
        """
        self._check_target()
        device = cuda_device.device(self.target.index)
        of_many = [self._host["multi_tensor"]] if self._host.get("multi_tensor") else []
        launches = [*self._host["launches"], *of_many]
        return Module(device, self.artifact.object_code, launches)

    def loaded(self, stream: int) -> Module:
        """The loaded machine code, for a call on a stream.

        Raises:
            DeviceError: it is not loaded, and the stream is being captured.
            TargetError: the target is an architecture without a GPU.
        """
        if "module" not in self.__dict__ and cuda_driver.capturing(stream):
            raise DeviceError(
                f"{self.name} is not loaded, and cannot be while a CUDA graph is being "
                "captured; call it once before"
            )
        return self.module

    @cached_property
    def _graphs(self) -> Graphs:
        return Graphs(self.module.device, self._host)

    @cached_property
    def _faults(self) -> Faults:
        return faults_of(self.module.device)

    @cached_property
    def word(self) -> int:
        """The device address where checks report; 0 without checks."""
        return self._faults.word(self.name) if self.checks else 0

    @property
    def reports(self) -> int:
        """The address of what checks of all kernels have reported; 0 without checks."""
        return self._faults.reports if self.checks else 0

    def look(self) -> None:
        """KernelError if checks of earlier calls have reported something."""
        if self.checks:
            self._faults.look()

    def captured(self, stream: int, brought: Sequence[object] = ()) -> bool:
        """Whether a call is captured, if that makes a difference to it.

        Args:
            stream: CUDA stream.
            brought: Arrays in host memory.
        """
        differs = self.has_temporaries or brought or self._graphs.pay
        return bool(differs) and cuda_driver.capturing(stream)

    def _quick(self, *args: object) -> None:
        """Fast path: launch with what is cached for such arguments."""
        if not self._cache.call(args):
            self._slow(*args)

    def cached_launch(self, shapes: Sequence[tuple[int, ...]]) -> CachedLaunch:
        """The cached launch for arrays of these shapes.

        Args:
            shapes: The kernel's shapes of all buffers.
        """
        return CachedLaunch(self, shapes)

    def slow(self, *args: object) -> None:
        """Slow path: check the arguments, then launch on the arrays' stream."""
        self._slow(*args)

    def _slow(self, *args: object) -> None:
        self._check_target()
        call = calling.prepare(self.signature, args, as_placed)
        there = [array for array in call.arrays if isinstance(array, DeviceArray)]
        for array in there:
            self._on_its_device(array)
        stream = next((a.stream for a in there if a.stream is not None), None)
        stream = stream or cuda_driver.LEGACY
        captured = cuda_driver.capturing(stream)
        if captured and len(there) < len(call.arrays):
            raise ArgumentError(
                f"{self.name}: an array is in host memory, which a CUDA graph that is "
                "being captured would read at each replay; move it to the GPU before"
            )
        module = self.loaded(stream)
        self.look()
        with module.device.lock, module.device.current():
            self._in_order(there, stream)
            waited = self._run(call, module, stream, captured=captured)
        for target, source in call.back:
            np.copyto(target, source)
        if waited and self.checks:
            self._faults.look(self.name)
        if not call.back:
            self._cache.keep(args, [array.shape for array in call.arrays])

    def _each(self, *given: Any) -> bool:
        """Update sets of PyTorch tensors; False if they do not qualify.

        Many sets share a launch, up to the size of its table.
        """
        count = len(self.signature.buffers)
        alignments = self._host["alignments"]
        sets = cuda_sets.sets_of(
            self.signature, given[:count], self.target.index, alignments
        )
        if sets is None:
            return False
        names = zip(self.signature.free, given[count:], strict=True)
        scalars = {s.name: calling.scalar(self.name, s, v) for s, v in names}
        length = str(self.signature.buffers[0].shape[0])
        known = calling.Call([None] * count, {length: 0, **scalars})
        block = calling.block_of(self.signature, known, [0] * count)
        at = [scalar.name for scalar in self.signature.scalars].index(length)
        stream = current_stream(given[0][0])
        module = self.loaded(stream)
        with module.device.lock, module.device.current():
            if len(sets) > 1 and self._host.get("multi_tensor"):
                cuda_multi_tensor.start(self._host, module.handles, sets, block, stream)
                return True
            for elements, addresses in sets:
                block[:count] = addresses
                block[count + at] = elements
                self.start(block, [], stream, again=False)
        return True

    def _on_its_device(self, array: DeviceArray) -> None:
        if array.place.key != ("cuda", self.target.index):
            raise ArgumentError(
                f"{self.name} runs on {self.target.name}, and an array is on "
                f"{array.place.name}; move it there"
            )

    def _in_order(self, there: Iterable[DeviceArray], stream: int) -> None:
        """Make the stream wait for the streams of the other arrays."""
        others = {a.stream for a in there if a.stream is not None} - {stream}
        for other in sorted(others - ({1} if stream == cuda_driver.LEGACY else set())):
            mark = cuda_device.Event(self.module.device)
            mark.record(other)
            mark.awaited_by(stream)

    def _run(
        self, call: calling.Call, module: Module, stream: int, *, captured: bool
    ) -> bool:
        """Copy in, launch, copy out; returns whether it has waited for the end."""
        held = workspace(module.device, stream)
        moved = cuda_transfers.moved(call.arrays, self._host["alignments"])
        addresses = [0 if n in moved else a.memory for n, a in enumerate(call.arrays)]
        block = calling.block_of(self.signature, call, addresses)
        place = ctypes.addressof(block)
        sizes = list(self.launcher.sizes(place))
        wanted = [*sizes, *(call.arrays[n].nbytes for n in moved)]
        taken = held.take(wanted, stream, captured=captured)
        copies = []
        for n, address in zip(moved, taken[len(sizes) :], strict=True):
            block[n] = address
            copies.append((self.signature.buffers[n], call.arrays[n], address))
            cuda_transfers.bring(*copies[-1], stream)
        again = not (moved or captured)
        self.start(block, taken[: len(sizes)], stream, again=again)
        waited = cuda_transfers.take_back(copies, stream)
        held.release()
        self._after(call, stream)
        owners = [a.owner for a in call.arrays if getattr(a, "kind", "") == "jax"]
        if owners:
            until_done(module.device, stream, owners)
        return waited or cuda_driver.blocking()

    def start(
        self, block: calling.Slots, temporaries: list[int], stream: int, *, again: bool
    ) -> None:
        """Start all launches, as a graph if that pays and the call may repeat.

        Args:
            block: The argument block: `calling.block_of`.
            temporaries: Addresses of the temporaries.
            stream: CUDA stream.
            again: Whether a call with the same arguments may follow; none that is
                captured: it becomes part of another graph.
        """
        place = ctypes.addressof(block)
        if again and self._graphs.pay and not cuda_driver.blocking():
            key = (bytes(block), tuple(temporaries))

            def start(on: int) -> None:
                self._started(place, temporaries, on)

            if self._graphs.run(key, start, stream):
                return
        self._started(place, temporaries, stream)

    def _started(self, place: int, temporaries: list[int], stream: int) -> None:
        module = self.module
        code = self.launcher(
            place,
            temporaries,
            self.word,
            module.table,
            self.entry,
            stream,
            self.encode,
        )
        if code:
            self.refused(code, place)
        cuda_driver.STARTED.note(self.name)
        if cuda_driver.blocking() and not cuda_driver.capturing(stream):
            self._waited(stream)

    def refused(self, code: int, place: int) -> NoReturn:
        """Raise the error of a launch.

        Args:
            code: What the launcher returned.
            place: The address of the argument block.
        """
        if code == launcher_text.TOO_LARGE:
            raise DeviceError(
                f"{self.name}: a launch has more blocks than a GPU allows; "
                "compute in parts"
            )
        error = cuda_driver.failed(f"{self.name}: starting a launch", code)
        raise self._misfit(place) or error

    def _misfit(self, place: int) -> ShapeError | None:
        """The error for a matrix whose rows no tensor map can have, if there is one."""
        if not self.launcher.has_maps:
            return None
        first = len(self.signature.buffers)
        slots = (ctypes.c_int64 * self.signature.slots).from_address(place)[first:]
        names = dict(zip(self._host["scalars"], slots, strict=True))
        found: list[ShapeError] = []

        def check(launch: int, names: dict[str, int]) -> None:
            for kind, *rest in self._host["launches"][launch]["args"]:
                if kind != "tensor_map" or isinstance(rest[0], str):
                    continue
                spec, data = self.signature.buffers[rest[0]], rest[1]
                columns = host_program.number(data["shape"][-1], names)
                size = columns * spec.numpy.itemsize
                if size % _ROW_BYTES:
                    found.append(
                        ShapeError(
                            f"{self.name}: the rows of {spec.name}, of {columns} "
                            f"{spec.dtype}, have {size} bytes; bulk copies need a "
                            f"multiple of {_ROW_BYTES}: pad them"
                        )
                    )

        host_program.run(self._host["program"], names, check)
        return next(iter(found), None)

    def _waited(self, stream: int) -> None:
        """Synchronise, and name the kernel in an error."""
        try:
            cuda_driver.call("cuStreamSynchronize", stream)
        except DeviceError as error:
            made = DeviceError(f"{self.name} failed: {error}")
            made.lost = error.lost
            raise made from None

    @cached_property
    def entry(self) -> int:
        """The address of `cuLaunchKernel`."""
        return cuda_driver.address_of("cuLaunchKernel")

    def _after(self, call: calling.Call, stream: int) -> None:
        """Make the streams of written arrays wait for the launches."""
        for spec, array in zip(self.signature.buffers, call.arrays, strict=True):
            other = getattr(array, "stream", None)
            if spec.written and other not in (None, stream):
                mark = cuda_device.Event(self.module.device)
                mark.record(stream)
                mark.awaited_by(other)

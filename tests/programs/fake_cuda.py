# ruff: noqa: ARG001, ARG002, N802, N815
"""A GPU that is none: the driver's parts that the runtime uses, and PyCUDA's or
cuda-bindings'.

Device memory is this process's, and a launch is run by the interpreter on it, with the
arguments that it is given. Everything that is called is written down in `calls`.
"""

from __future__ import annotations

import ctypes
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np

from tensorlang import devices, nvidia, targets
from tensorlang.codegen.simt.host import data_of, launches
from tensorlang.codegen.simt.multi_tensor import MultiTensorLaunch, multi_tensor_launch
from tensorlang.errors import InterpreterError
from tensorlang.ir.dtypes import DType
from tensorlang.ir.interpreter import run
from tensorlang.ir.interpreter.state import ALL_CHECKS
from tensorlang.ir.nodes import Function, Load, Param, Store
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.visit import walk
from tensorlang.ops.registry import operators
from tensorlang.runtime import (
    building,
    host_program,
)
from tensorlang.runtime.arrays import dlpack
from tensorlang.runtime.cuda import arrays as cuda_arrays
from tensorlang.runtime.cuda import backend as cuda
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import faults as cuda_faults
from tensorlang.runtime.cuda import graphs as cuda_graphs
from tensorlang.runtime.cuda import lifetimes as cuda_lifetimes
from tensorlang.runtime.cuda import module as cuda_module
from tensorlang.runtime.cuda import multi_tensor as cuda_multi_tensor
from tensorlang.runtime.cuda import toolchain
from tensorlang.tuner.measurement import telemetry

CONTEXT, OTHER_CONTEXT = 0xC0, 0xC1
OUT_OF_MEMORY, INVALID_HANDLE, ILLEGAL_ADDRESS, LAUNCH_FAILED = 2, 400, 700, 719
MISALIGNED = 716
CAPTURE_UNSUPPORTED = 900
# what ends a capture with an error; and graphs in graphs, which are not wanted
NOT_CAPTURED = {
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuModuleLoadData",
    "cuMemAlloc_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuStreamBeginCapture_v2",
    "cuGraphLaunch",
}
MOST_BYTES = 1 << 36  # of one piece of memory
NAMES = {
    100: "CUDA_ERROR_NO_DEVICE",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    600: "CUDA_ERROR_NOT_READY",
    801: "CUDA_ERROR_NOT_SUPPORTED",
}
NAMES |= {2: "CUDA_ERROR_OUT_OF_MEMORY", 400: "CUDA_ERROR_INVALID_HANDLE"}
NAMES |= {700: "CUDA_ERROR_ILLEGAL_ADDRESS", 716: "CUDA_ERROR_MISALIGNED_ADDRESS"}
NAMES |= {900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}
NAMES |= {1: "CUDA_ERROR_INVALID_VALUE", 209: "CUDA_ERROR_NO_BINARY_FOR_GPU"}
NAMES |= {222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}
NAMES |= {719: "CUDA_ERROR_LAUNCH_FAILED"}
# temporaries are written and read again, as parameters of functions are not
CHECKS = ALL_CHECKS - {"inout"}
LOWERED = b"\n// lowered function\n"  # what follows it in a cubin of this GPU
START = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_uint64,
    *(ctypes.c_uint32,) * 7,
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


OF_CONTEXTS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


OF_STREAMS = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int32)
)


def _of_flag(entry):
    """An entry of a stream, and of a place for a flag."""

    def called(stream, place):
        flag = ctypes.c_int()
        code = entry(stream, ctypes.byref(flag))
        place[0] = flag.value
        return code

    return called


def _of_place(entry):
    """An entry whose argument is a context, or the address of a place for one."""

    def called(address):
        place = ctypes.c_void_p(CONTEXT)
        if address == CONTEXT:
            return entry(address)
        code = entry(ctypes.byref(place))
        ctypes.memmove(address, ctypes.byref(place), 8)
        return code

    return called


def install(monkeypatch, make=None, library="pycuda") -> Driver:
    """Let this process see a GPU, of `Driver` or `make`, until the test ends.

    It is shown by PyCUDA or by cuda-bindings: `library` is "pycuda" or "cuda.bindings".
    """
    driver = (make or Driver)()
    shows = {"pycuda": _pycuda, "cuda.bindings": _bindings}
    for name in shows:
        for package in (name, f"{name}.driver"):
            monkeypatch.setitem(sys.modules, package, None)  # not installed
    module = shows[library](driver)
    package = ModuleType(library)
    package.driver = module
    monkeypatch.setitem(sys.modules, library, package)
    monkeypatch.setitem(sys.modules, f"{library}.driver", module)
    if library == "cuda.bindings":
        monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setattr(cuda_driver, "library", lambda: driver)
    monkeypatch.setattr(cuda_driver, "address_of", driver.address_of)
    monkeypatch.setattr(toolchain, "versions", lambda: "fake")
    monkeypatch.setattr(toolchain, "ptx_of", lambda source, arch, **_: source + arch)
    monkeypatch.setattr(
        toolchain, "cubin_of", lambda ptx, _, **__: (ptx.encode(), dict(USED))
    )
    compiled = cuda.compiled

    def remembered(source, lowered, signature, target):
        cubin, wrapped = compiled(source, lowered, signature, target)
        cubin += LOWERED + show(lowered).encode()  # for processes that find it cached
        driver.code[cubin] = lowered
        return cubin, wrapped

    monkeypatch.setattr(cuda, "compiled", remembered)
    monkeypatch.setattr(cuda_module, "_WORKSPACES", {})
    monkeypatch.setattr(cuda_graphs, "_STREAMS", {})
    monkeypatch.setattr(cuda_lifetimes, "_HELD", {})
    forget()
    return driver


def forget():
    """Drop what is remembered of GPUs, real and fake."""
    building.forget()
    for op in operators():
        op.forget()
    for held in (
        nvidia.gpus,
        devices.cuda_devices,
        targets._cuda,
        cuda_device.device,
        cuda_faults.faults_of,
        cuda_arrays.place_of,
        telemetry.reader,
        cuda_driver.blocking,
    ):
        held.cache_clear()


USED = {"registers": 32, "spill_bytes": 0, "stack_bytes": 0, "shared_bytes": 0}
COUNT, VERSION, NAME = 2, 13050, "Fake H200"
ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "L2_CACHE_SIZE": 50 << 20,
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
}


def _bus(index):
    return f"0000:{index:02}:00.0"


def _pycuda(driver):
    """`pycuda.driver` with what is asked of it."""

    class Device:
        count = staticmethod(lambda: COUNT)

        def __init__(self, index):
            self.index = index

        def name(self):
            return NAME

        def compute_capability(self):
            return (9, 0)

        def pci_bus_id(self):
            return _bus(self.index)

        def get_attribute(self, name):
            return ATTRIBUTES[name]

        def retain_primary_context(self):
            driver.note("retain", self.index)
            return SimpleNamespace(handle=CONTEXT)

    return _module(
        "pycuda.driver",
        init=lambda: driver.note("init"),
        Device=Device,
        device_attribute=SimpleNamespace(**{name: name for name in ATTRIBUTES}),
        get_driver_version=lambda: VERSION,
    )


def _bindings(driver):
    """`cuda.bindings.driver` with what is asked of it; codes of `driver.fail` first."""

    def function(name, found):
        def called(*args):
            code = driver.fail.get(name, 0)
            told = Code(code)
            return (told, None) if code else (told, *found(*args))

        return called

    def retained(device):
        driver.note("retain", device)
        return (CONTEXT,)

    functions = {
        "cuInit": lambda _: driver.note("init") or (),
        "cuDeviceGetCount": lambda: (COUNT,),
        "cuDriverGetVersion": lambda: (VERSION,),
        "cuDeviceGet": lambda index: (index,),
        "cuDeviceGetName": lambda size, _: (NAME.encode().ljust(size, b"\0"),),
        "cuDeviceGetPCIBusId": lambda _, device: (_bus(device).encode() + b"\0",),
        "cuDeviceGetAttribute": lambda kind, _: (ATTRIBUTES[kind],),
        "cuDevicePrimaryCtxRetain": retained,
    }
    kinds = {f"CU_DEVICE_ATTRIBUTE_{name}": name for name in ATTRIBUTES}
    return _module(
        "cuda.bindings.driver",
        CUdevice_attribute=SimpleNamespace(**kinds),
        **{name: function(name, found) for name, found in functions.items()},
    )


class Code(int):
    """A code of the driver, as cuda-bindings has it."""

    @property
    def name(self):
        return NAMES.get(int(self), "CUDA_SUCCESS")


def _module(name, **members):
    made = ModuleType(name)
    made.__dict__.update(members)
    return made


class Driver:
    """The entries of libcuda, as ctypes would show them.

    Attributes:
        calls: What was called, with what matters of its arguments.
        code: The lowered function of each cubin.
        fail: Codes that functions give, by name, in place of doing anything.
        launched: Name, grid, block, shared bytes and stream of each launch.
    """

    def __init__(self):
        self.calls, self.code, self.fail, self.launched = [], {}, {}, []
        self.memory, self.kernels, self.graphs = {}, {}, {}
        self.errors = []
        self.current, self.capturing = CONTEXT, None
        self._start = START(self._launch)
        self._entries = {}  # as compiled code calls them
        self._next = 1000

    def note(self, *what):
        self.calls.append(what)

    def counted(self, name):
        return sum(call[0] == name for call in self.calls)

    def handle(self):
        self._next += 1
        return self._next

    def __getattr__(self, name):
        if name == "cuLaunchKernel":
            return self._start
        if name not in cuda_driver.FUNCTIONS:
            raise AttributeError(name)
        types = cuda_driver.FUNCTIONS[name]

        def function(*args):
            assert len(args) == len(types), name
            for kind, arg in zip(types, args, strict=True):
                if kind is not ctypes.c_void_p or isinstance(arg, (int, bytes)):
                    kind(arg) if not isinstance(arg, (bytes, ctypes.c_void_p)) else 0
            self.note(name, *[a for a in args if isinstance(a, int)])
            if name in self.fail:
                return self.fail[name]
            if self.capturing is not None and name in NOT_CAPTURED:
                return CAPTURE_UNSUPPORTED
            return getattr(self, f"_{name}")(*args) or 0

        return function

    def address_of(self, name):
        """The address of an entry, for compiled code."""
        found = getattr(self, name)
        if name.startswith("cuCtx"):  # of a context, or of a place for one
            found = self._entries.setdefault(name, OF_CONTEXTS(_of_place(found)))
        elif name == "cuStreamIsCapturing":
            found = self._entries.setdefault(name, OF_STREAMS(_of_flag(found)))
        return ctypes.cast(found, ctypes.c_void_p).value

    # ------------------------------------------------------------------ entries

    def _cuGetErrorName(self, code, text):
        text._obj.value = NAMES[code].encode()

    def _cuGetErrorString(self, code, text):
        text._obj.value = b"as the driver says"

    def _cuDeviceGet(self, place, index):
        place._obj.value = index

    def _cuDeviceGetPCIBusId(self, text, size, device):
        text.value = b"0000:1b:00.0"

    def _cuCtxGetCurrent(self, place):
        place._obj.value = self.current

    def _cuCtxPushCurrent_v2(self, context):
        self.current = context

    def _cuCtxPopCurrent_v2(self, place):
        self.current = OTHER_CONTEXT

    def _cuModuleLoadData(self, place, cubin):
        place._obj.value = self.handle()
        if cubin not in self.code:
            self.code[cubin] = parse(cubin.partition(LOWERED)[2].decode())
        self.kernels[place._obj.value] = self.code[cubin]

    def _cuModuleGetFunction(self, place, module, name):
        function = self.kernels[module.value]
        found = [x for x in launches(function) if x.name == name.decode()]
        of_many = multi_tensor_launch(function)
        if of_many is not None and of_many.name == name.decode():
            found = [of_many]
        place._obj.value = self.handle()
        (self.kernels[place._obj.value],) = found

    def _cuFuncSetAttribute(self, function, attribute, value):
        assert (function.value in self.kernels, attribute) == (True, 8)

    def _cuMemPoolCreate(self, place, settings):
        words = list(settings._obj)
        assert (words[0], words[2], ctypes.sizeof(settings._obj)) == (1, 1, 88)
        assert words[3] in (0, 1)
        place._obj.value = self.handle()

    def _cuMemPoolSetAttribute(self, pool, attribute, value):
        assert (attribute, value._obj.value) == (4, 1 << 30)

    def _cuMemGetInfo_v2(self, free, total):
        free._obj.value, total._obj.value = 3 << 20, 64 << 20

    def _cuMemAllocFromPoolAsync(self, place, size, pool, stream):
        return self._cuMemAlloc_v2(place, size)

    def _cuMemFree_v2(self, address):
        del self.memory[address]

    def _cuMemAlloc_v2(self, place, size):
        self.in_context()
        if size > MOST_BYTES:
            return OUT_OF_MEMORY
        held = (ctypes.c_ubyte * (size + 256))()
        address = -(-ctypes.addressof(held) // 256) * 256
        ctypes.memset(address, 0xCB, size)
        self.memory[address] = (held, size)
        place._obj.value = address
        return 0

    def _cuMemFreeAsync(self, address, stream):
        if self.capturing is None:  # else a graph's, when it is replayed
            del self.memory[address]

    def _cuMemHostAlloc(self, place, size, flags):
        assert flags == 2  # mapped
        return self._cuMemAlloc_v2(place, size)

    def _cuMemHostGetDevicePointer_v2(self, place, address, flags):
        place._obj.value = address.value

    def _cuMemcpyHtoDAsync_v2(self, address, source, size, stream):
        self.inside(address, size)
        ctypes.memmove(address, source, size)

    def _cuMemcpyDtoHAsync_v2(self, target, address, size, stream):
        self.inside(address, size)
        ctypes.memmove(target, address, size)

    def _cuMemcpyDtoDAsync_v2(self, target, source, size, stream):
        self.inside(target, size)
        self.inside(source, size)
        ctypes.memmove(target, source, size)

    def _cuMemsetD8Async(self, address, value, size, stream):
        self.inside(address, size)
        ctypes.memset(address, value, size)

    def _cuPointerGetAttribute(self, place, attribute, address):
        assert attribute == 1
        place._obj.value = CONTEXT if self.holds(address) else OTHER_CONTEXT

    def _cuStreamCreate(self, place, flags):
        place._obj.value = self.handle()

    def _cuStreamSynchronize(self, stream):
        self.in_context()

    def _cuEventCreate(self, place, flags):
        place._obj.value = self.handle()

    def _cuEventElapsedTime(self, place, first, last):
        place._obj.value = 1.5

    def _cuStreamIsCapturing(self, stream, place):
        assert stream not in (0, 1)
        place._obj.value = self.capturing is not None and self.capturing[0] == stream

    def _cuStreamBeginCapture_v2(self, stream, mode):
        assert stream not in (0, 1, 2)
        self.capturing = (stream, [])

    def _cuStreamEndCapture(self, stream, place):
        place._obj.value = self.handle()
        assert self.capturing[0] == stream
        self.graphs[place._obj.value] = self.capturing[1]
        self.capturing = None

    def _cuGraphInstantiateWithFlags(self, place, graph, flags):
        place._obj.value = self.handle()
        self.graphs[place._obj.value] = self.graphs[graph.value]

    def _cuGraphLaunch(self, graph, stream):
        for launch in self.graphs[graph]:
            self._execute(*launch[:-2], stream, launch[-1])

    def _nothing(self, *_):
        return 0

    _cuEventQuery = _cuStreamWaitEvent = _cuEventRecord = _cuEventSynchronize = _nothing
    _cuEventDestroy_v2 = _cuGraphDestroy = _cuGraphExecDestroy = _nothing
    _cuModuleUnload = _nothing

    # ------------------------------------------------------------------- launches

    def _launch(self, kernel, *rest):
        """`cuLaunchKernel`; what goes wrong in here is raised when the test ends."""
        try:
            return self._launched(kernel, *rest)
        except Exception as error:  # ctypes would print it and go on
            self.errors.append(error)
            return LAUNCH_FAILED

    def _launched(self, kernel, *rest):
        *sizes, stream, params, _ = rest
        launch = self.kernels[kernel]
        if isinstance(launch, MultiTensorLaunch):
            return self._each_set(launch, sizes, stream, params)
        values = []
        for arg, place in zip(launch.data()["args"], params, strict=False):
            values.append(_passed(arg, place))
        if "cuLaunchKernel" in self.fail:
            return self.fail["cuLaunchKernel"]
        if self.capturing is not None:
            assert stream == self.capturing[0]
            self.capturing[1].append((launch, sizes, stream, values))
            return 0
        return self._execute(launch, sizes, stream, values)

    def _each_set(self, of, sizes, stream, params):
        """A launch for many sets: each as if it were launched alone."""
        told = of.data()
        table = cuda_multi_tensor._table_of(of.most, len(of.buffers)).from_address(
            params[0]
        )
        shared = {
            var.name: np.frombuffer(
                ctypes.string_at(params[n], max(var.dtype.bits // 8, 1)),
                var.dtype.numpy,
            )[0]
            for n, var in enumerate(of.scalars, 1)
        }
        blocks = 0
        for at in range(table.count):
            names = {**shared, of.length.name: np.int64(table.lengths[at])}
            own = host_program.number(
                told["blocks"], {of.length.name: table.lengths[at]}
            )
            assert table.first[at] == blocks
            blocks += own
            values = [np.uint64(table.addresses[n][at]) for n in range(len(of.buffers))]
            values += [names[var.name] for var in of.launch.scalars]
            grid = [own, 1, 1, *of.launch.block, 0]
            if code := self._execute(of.launch, grid, stream, values):
                return code
        assert (sizes[0], sizes[3:6]) == (blocks, list(of.launch.block))
        return 0

    def _execute(self, launch, sizes, stream, values):
        self.in_context()
        self.launched.append(
            (launch.name, *map(tuple, (sizes[:3], sizes[3:6])), stream)
        )
        names = {
            var.name: values[len(launch.buffers) + at].item()
            for at, var in enumerate(launch.scalars)
        }
        grid = [host_program.number(data_of(e), names) for e in launch.grid]
        assert (grid, list(launch.block)) == (sizes[:3], sizes[3:6])
        params, arrays = [], []
        moves = wide_moves(launch)
        for buffer, address in zip(launch.buffers, values, strict=False):
            if buffer in launch.scratch:
                continue
            size = host_program.number(data_of(buffer.shape[0]), names)
            if not self.inside(int(address), size * buffer.dtype.bytes):
                return ILLEGAL_ADDRESS
            if int(address) % moves.get(buffer, buffer.dtype.bytes):
                return MISALIGNED
            raw = (ctypes.c_ubyte * (size * buffer.dtype.bytes)).from_address(
                int(address)
            )
            arrays.append(np.frombuffer(raw, buffer.dtype.numpy))
            params.append(Param(buffer, "inout"))
        function = Function(launch.name, tuple(params), launch.scalars, launch.nest)
        try:
            run(function, *arrays, checks=CHECKS, fuel=1 << 40, **names)
        except InterpreterError as error:
            told = re.search(r"check failed with code (-?\d+)", str(error))
            if told is None:
                raise
            ctypes.c_int32.from_address(int(values[-1])).value = int(told[1])
        return 0

    def holds(self, address, size=1):
        return any(
            start <= address and address + size <= start + room
            for start, (_, room) in self.memory.items()
        )

    def inside(self, address, size):
        assert not size or self.holds(address, size), hex(address)
        return True

    def in_context(self):
        assert self.current == CONTEXT, "no context is current"


def _passed(arg, place):
    """What the driver reads for an argument of a kernel."""
    if arg[0] == "tensor_map":
        return np.frombuffer(ctypes.string_at(place, 128), np.uint8)
    kind = DType(arg[2]) if arg[0] == "scalar" else DType("u64")
    raw = ctypes.string_at(place, max(kind.bits // 8, 1))
    return np.frombuffer(raw, kind.numpy)[0]


def wide_moves(launch):
    """The most bytes of each buffer that an instruction of a launch moves."""
    moves = {}
    for node in walk(launch.nest):
        if isinstance(node, (Load, Store)):
            value = node.value if isinstance(node, Store) else node
            size = value.dtype.lanes * node.buffer.dtype.bytes
            moves[node.buffer] = max(moves.get(node.buffer, 0), size)
    return moves


class Tensor:
    """An array on the fake GPU that speaks `__cuda_array_interface__`.

    It begins some bytes, `offset`, into memory of its own.
    """

    def __init__(self, driver, array, stream=None, *, read_only=False, offset=0):
        size = array.nbytes + offset
        self.memory = cuda_device.Memory(cuda_device.device(0), size)
        self.address = int(self.memory) + offset
        self.driver, self.shape, self.dtype = driver, array.shape, array.dtype
        ctypes.memmove(
            self.address, np.ascontiguousarray(array).ctypes.data, array.nbytes
        )
        self.told = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (self.address, read_only),
            "strides": None,
            "stream": stream,
            "version": 3,
        }

    @property
    def __cuda_array_interface__(self):
        return self.told

    def get(self):
        return fetched(self)

    def get_at(self):
        """The elements where it was moved to."""
        raw = ctypes.string_at(self.address, int(np.prod(self.shape)) * 4)
        return np.frombuffer(raw, np.float32).reshape(self.shape)

    def fill(self, value):
        raw = np.full(self.shape, value, self.told["typestr"]).tobytes()
        ctypes.memmove(self.address, raw, len(raw))


def fetched(array):
    """The elements of an array on the fake GPU."""
    told = array.__cuda_array_interface__
    size = int(np.prod(told["shape"])) * np.dtype(told["typestr"]).itemsize
    raw = ctypes.string_at(told["data"][0], size)
    return np.frombuffer(raw, told["typestr"]).reshape(told["shape"])


DESCRIBE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
STREAM_OF = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)
EXCHANGE_NAME = b"dlpack_exchange_api"
EXCHANGES = []  # what capsules refer to: they have no destructors


def exchange_of(stream: int) -> object:
    """The capsule of DLPack's C exchange API for tensors of `torch_of`."""

    def describe(tensor, place):
        try:
            kind = dlpack.type_number(np.dtype(tensor.dtype.split(".")[-1]))
            address, sizes, steps = tensor.data_ptr(), tensor.shape, tensor.stride()
        except Exception:  # as a library would report it
            return -1
        tensor.described = [(ctypes.c_int64 * 8)(*each) for each in (sizes, steps)]
        shape, strides = map(ctypes.addressof, tensor.described)
        words = (ctypes.c_int32 * 4)(dlpack.CUDA, tensor.get_device(), len(sizes), kind)
        ctypes.memmove(place + 8, words, 16)
        rest = (ctypes.c_uint64 * 3)(shape, strides, 0)
        ctypes.memmove(place + 24, rest, 24)
        ctypes.c_uint64.from_address(place).value = address
        return 0

    def stream_of(kind, index, place):
        place[0] = stream + index
        return 0

    held = (DESCRIBE(describe), STREAM_OF(stream_of))
    addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in held]
    api = (ctypes.c_uint64 * 7)(1 | 3 << 32, 0, 0, 0, 0, *addresses)
    EXCHANGES.append((held, api))
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    )(("PyCapsule_New", ctypes.pythonapi))
    return make(ctypes.addressof(api), EXCHANGE_NAME, None)


def torch_of(
    tensor: type, stream: int = 31, *, exchange: bool = True, **members: object
) -> ModuleType:
    """A PyTorch with tensors on a GPU, of which it records nothing.

    Args:
        exchange: Whether it has DLPack's C exchange API.
    """
    module = ModuleType("torch")
    if exchange:
        tensor.__dlpack_c_exchange_api__ = exchange_of(stream)
    tensor.__module__ = "torch"
    plain = {
        "requires_grad": False,
        "is_cuda": True,
        "is_cpu": False,
        "is_nested": False,
        "layout": "strided",
        "device": SimpleNamespace(type="cuda", index=0),
        "is_neg": lambda _: False,
        "detach": lambda self: self,
    }
    for name, value in plain.items():
        if not hasattr(tensor, name):
            setattr(tensor, name, value)
    module.__dict__.update(
        Tensor=tensor,
        strided="strided",
        is_grad_enabled=lambda: True,
        nn=SimpleNamespace(Parameter=type("Parameter", (tensor,), {})),
        autograd=SimpleNamespace(
            forward_ad=SimpleNamespace(_current_level=-1),
            graph=SimpleNamespace(increment_version=lambda _: None),
        ),
        _C=SimpleNamespace(
            _len_torch_dispatch_stack=lambda: 0,
            _get_tracing_state=lambda: None,
            _TorchDispatchModeKey=SimpleNamespace(PROXY=0),
            _cuda_getCurrentRawStream=lambda index: stream + index,
        ),
        empty_strided=lambda shape, _, **told: module.empty(shape, **told),
        **members,
    )
    return module

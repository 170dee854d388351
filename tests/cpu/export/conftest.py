"""Exported libraries, called by ctypes and by C programs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import numpy as np
import pytest

from tensorlang.graph.specs import TensorSpec
from tensorlang.layers import Conv2D, Dense, Flatten, MaxPool2D, Model, Sequential
from tensorlang.ops import random

EXAMPLES = Path(__file__).parents[3] / "examples"
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, TASK, ctypes.c_void_p)
WARNINGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class Threads(ctypes.Structure):
    """`tensorlang_threads`."""

    _fields_ = (
        ("count", ctypes.c_int),
        ("parallel_for", FOR),
        ("context", ctypes.c_void_p),
    )


def aligned(size):
    """Bytes from a multiple of 64 on."""
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size]


@dataclass
class Loaded:
    """An exported library in this process, called with sizes, arrays and numbers."""

    name: str
    library: ctypes.CDLL

    aligned = staticmethod(aligned)

    def workspace(self, *sizes):
        ask = self.library[f"{self.name}_workspace"]
        ask.restype = ctypes.c_size_t
        return ask(*map(ctypes.c_int64, sizes))

    def __call__(self, sizes, *arguments, threads=None, workspace=None):
        given = [ctypes.c_int64(size) for size in sizes]
        given += [
            ctypes.c_void_p(a.ctypes.data if a.size else None)
            if isinstance(a, np.ndarray)
            else a
            for a in arguments
        ]
        bytes = self.workspace(*sizes) if workspace is None else workspace.size
        if bytes > 1 << 40:
            bytes = 0
        room = aligned(bytes) if workspace is None else workspace
        given += [
            ctypes.c_void_p(room.ctypes.data if bytes else None),
            ctypes.c_size_t(bytes),
            threads and ctypes.byref(threads),
        ]
        return self.library[self.name](*given)

    def said(self, code):
        tell = self.library[f"{self.name}_error"]
        tell.restype = ctypes.c_char_p
        return tell(code).decode()


@pytest.fixture(scope="session")
def loaded():
    """Load an exported library."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler: apt-get install gcc")

    def load(made):
        static, shared = made.libraries
        assert static.exists()
        return Loaded(made.name, ctypes.CDLL(str(shared)))

    return load


@pytest.fixture(scope="session")
def in_order():
    """Threads of a caller that has one: tasks run one after the other, last first."""

    def run(_, tasks, task, data):
        for number in reversed(range(tasks)):
            task(data, number)

    def threads(count):
        return Threads(count, FOR(run), None)

    return threads


@pytest.fixture(scope="session")
def program():
    """Compile the exported `main.c`, and run it on arrays: inputs, then outputs."""

    def run(made, threads, *arrays, sanitized=False, compiler="gcc", emulator=()):
        folder = made.folder
        main = folder / "main_of_test"
        sources = (
            (f"{made.name}.c", "tensorlang_pool.c", *map(str, made.objects))
            if sanitized
            else (f"lib{made.name}.a",)
        )
        flags = (*WARNINGS, "-Wno-sign-conversion", *(SANITIZERS if sanitized else ()))
        command = [compiler, *flags, "main.c", *sources]
        subprocess.run(
            [*command, "-lm", "-pthread", "-o", main], cwd=folder, check=True
        )
        files = [folder / f"{n}.bin" for n in range(len(arrays))]
        for file, array in zip(files, arrays, strict=True):
            array.tofile(file)
        subprocess.run([*emulator, main, str(threads), *files], check=True)
        return [
            np.fromfile(file, array.dtype).reshape(array.shape)
            for file, array in zip(files, arrays, strict=True)
        ]

    return run


def example(name):
    """A module of the examples."""
    spec = util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def lenet():
    layers = (Conv2D(6, 5, "relu", padding="same"), MaxPool2D(2), Conv2D(16, 5, "relu"))
    layers += (
        MaxPool2D(2),
        Flatten(),
        Dense(120, "relu"),
        Dense(84, "relu"),
        Dense(10),
    )
    spec = TensorSpec(("batch", 1, 28, 28))
    return Model(Sequential(*layers)).compile(spec, train=False, key=random.key(1))


@pytest.fixture(scope="session")
def reader():
    """The transformer block of the examples, and a batch of 16."""
    module = example("transformer_block")
    spec = TensorSpec(("batch", module.LENGTH), "int64")
    model = Model(module.Reader()).compile(spec, train=False, key=random.key(4))
    return model, module.batch(random.key(6), 16)[0]

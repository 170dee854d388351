"""What is called in the driver, against its header, where a wheel has that."""

import ctypes
import re

import pytest

from tensorlang.runtime.cuda import toolchain
from tensorlang.runtime.cuda.driver import FUNCTIONS

POINTER = re.compile(
    r"\*|\bCU(stream|event|graph|graphExec|module|function|context|memoryPool)\b"
)
SIZES = {"size_t": 8, "CUdeviceptr": 8, "unsigned long long": 8, "unsigned char": 1}


@pytest.fixture(scope="module")
def header():
    found = [f / "include" / "cuda.h" for f in toolchain._folders()]
    path = next((path for path in found if path.exists()), None)
    if path is None:
        pytest.skip("no cuda.h; pip install nvidia-cuda-runtime")
    return path.read_text("utf-8")


def size_of(parameter):
    if POINTER.search(parameter):
        return ctypes.sizeof(ctypes.c_void_p)
    return next((n for word, n in SIZES.items() if word in parameter), 4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_the_header(name, header):
    define = r"#\s*define\s+(cu\w+)\s+(?:\w+\()?(cu\w+)\)?\s*$"
    renamed = re.findall(define, header, re.MULTILINE)
    called = {new: old for old, new in renamed}
    titles = (name, called.get(name, name), re.sub(r"_v\d$", "", name))
    pattern = rf"CUresult\s+CUDAAPI\s+(?:{'|'.join(titles)})\s*\(([^;]*)\);"
    declared = re.search(pattern, header)
    assert declared, f"the header has no {name}"
    parameters = declared[1].split(",")
    assert list(map(size_of, parameters)) == list(map(ctypes.sizeof, FUNCTIONS[name]))

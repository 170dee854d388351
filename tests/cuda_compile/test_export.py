"""Libraries exported for CUDA compile, and start the launches of their host programs.

The driver is a stand-in that prints what it is asked to start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tensorlang import targets
from tensorlang.codegen.simt.host import host_program
from tensorlang.errors import ArgumentError
from tensorlang.export import export_cuda
from tensorlang.ops import find
from tensorlang.ops.kernels import building
from tensorlang.runtime import host_program as hosts
from tensorlang.runtime.cuda import backend

PLACES = (
    Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include",
    *Path(sysconfig.get_path("purelib")).glob("nvidia/*/include"),
    *Path("/usr/local").glob("cuda-*/include"),
)
HEADERS = next((place for place in PLACES if (place / "cuda.h").exists()), None)
ARCHITECTURES = ("sm_80", "sm_90a")
DRIVER = """
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute asked, CUdevice device)
{
    int capability = atoi(getenv("CAPABILITY"));
    int major = asked == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    *value = major ? capability / 10 : capability % 10;
    return (CUresult)device;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    *module = (CUmodule)image;
    return memcmp(image, "\\177ELF", 4) ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module)
{
    return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    *function = (CUfunction)name;
    return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int value)
{
    return f && a && value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemsetD32Async(CUdeviceptr p, unsigned value, size_t count, CUstream stream)
{
    printf("faults %u %zu\\n", value, count);
    return p && !stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t count, CUstream stream)
{
    memset(to, 0, count);
    return from && !stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamSynchronize(CUstream stream) { return (CUresult)(stream != NULL); }
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType t,
    cuuint32_t rank, void *p, const cuuint64_t *d, const cuuint64_t *s,
    const cuuint32_t *b, const cuuint32_t *e, CUtensorMapInterleave i,
    CUtensorMapSwizzle w,
    CUtensorMapL2promotion l, CUtensorMapFloatOOBfill f)
{
    memset(map, 0, sizeof *map);
    int missing = !p || !d || !s || !b || !e;
    return (CUresult)(missing || i || f || rank != 2 || t > 99 || w > 9 || l > 9);
}
CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned a,
    unsigned b, unsigned c, unsigned shared, CUstream s, void **params, void **extra)
{
    printf("%s %u %u %u, %u %u %u, %u\\n", (char *)f, x, y, z, a, b, c, shared);
    return (CUresult)(s || extra || !params);
}
"""
MAIN = """
#include <stdio.h>
#include "{name}.h"
int main(void)
{{
    {name}_code code;
    int result = {name}_load(&code);
    if (result) {{ printf("load %d\\n", result); return 0; }}
    size_t bytes = {name}_workspace(&code{sizes});
    result = {name}(&code{sizes}{arrays}, bytes ? 4096 : 0, bytes, NULL);
    printf("call %d\\n", result);
    printf("%d", {name}(&code{sizes}{arrays}, 1, bytes, NULL));
    printf(" %d", {name}(&code{sizes}{nothing}, 4096, bytes, NULL));
    printf(" %d", {name}(&code{sizes}{same}, 4096, bytes, NULL));
    printf(" %d\\n", bytes ? {name}(&code{sizes}{arrays}, 4096, bytes - 1, NULL) : -4);
    return {name}_unload(&code);
}}
"""
CASES = {
    "nn.dense": ((64, 784), (512, 784)),
    "nn.embedding": ((50,), (30, 8)),
    "math.sort": ((20, 3000),),
    "nn.softmax": ((64, 1000),),
}


def expected(op, workload, arch):
    """The launches of a host program, as the stand-in prints them."""
    target = targets.get(f"cuda:{arch}")
    _, schedule = building.best(op, workload, target)
    program = host_program(backend.lower(schedule.function, target))
    lines = ["faults 0 1"] * any(["faults"] in k["args"] for k in program["launches"])

    def launch(k, names):
        asked = program["launches"][k]
        grid, block = (
            " ".join(str(hosts.number(n, names)) for n in asked[key])
            for key in ("grid", "block")
        )
        shared = asked.get("dynamic_shared", 0)
        lines.append(f"{asked['name']} {grid}, {block}, {shared}")

    hosts.run(program["program"], dict(op.sizes(workload)), launch)
    return lines


@pytest.mark.skipif(HEADERS is None, reason="there is no cuda.h: install a toolkit")
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no C compiler: gcc")
@pytest.mark.parametrize("name", CASES)
def test_it_starts_the_launches_of_its_program(name, tmp_path):
    op = find(name)
    workload = op.workload(*CASES[name])
    on = [targets.get(f"cuda:{arch}") for arch in ARCHITECTURES]
    made = export_cuda(op, [workload], tmp_path, on=on)
    count = len(op.traced(workload).function.params)
    places = [4096 << n + 20 for n in range(count)]
    names = {
        "name": made.name,
        "sizes": "".join(
            f", {extent}"
            for row, shape in zip(
                op.traced(workload).names, workload.shapes, strict=True
            )
            for called, extent in zip(row, shape, strict=True)
            if called is not None
        ),
        "arrays": "".join(f", {place}" for place in places),
        "nothing": ", 0" * count,
        "same": f", {places[0]}" * count,
    }
    (tmp_path / "driver.c").write_text(DRIVER)
    (tmp_path / "main.c").write_text(MAIN.format(**names))
    flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = ["main.c", "driver.c", f"{made.name}.c", *map(str, made.objects)]
    command = ["gcc", *flags, "-I", HEADERS, *sources, "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    for capability, arch in (("86", "sm_80"), ("90", "sm_90a"), ("75", "")):
        environment = os.environ | {"CAPABILITY": capability}
        done = subprocess.check_output(tmp_path / "main", text=True, env=environment)
        *lines, last = done.splitlines()
        if not arch:
            assert (lines, last) == ([], "load -6")
            continue
        assert lines == [*expected(op, workload, arch), "call 0"]
        alignment, null, overlap, small = map(int, last.split())
        assert (alignment, null, overlap, small) == (-3, -2, -5, -4)


def test_mistakes_are_sentences(tmp_path):
    op = find("math.exp")
    for on in ([], [targets.host()]):
        with pytest.raises(ArgumentError, match="such as cuda:sm_90a"):
            export_cuda(op, [op.workload((8,))], tmp_path, on=on)

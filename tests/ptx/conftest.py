"""The machine for PTX by itself, and bodies of PTX run on arrays."""

import importlib

import numpy as np
import pytest


@pytest.fixture(scope="session")
def machine(programs):
    return importlib.import_module(f"{programs.__name__}.ptx_machine")


@pytest.fixture
def run(machine):
    """Run a body of PTX on arrays: `run(body, *arrays, threads=32)`.

    The body's parameters p0, p1, ... are the arrays' addresses, already in %a0, %a1,
    ...; %t is the number of the thread, and %b<N>, %h<N>, %w<N>, %f<N>, %d<N>, %p<N>
    are registers of 64, 16, 32, 32, 64 and no bits.
    """

    def executed(body, *arrays, threads=32, blocks=1, shared=0):
        names = [f"p{n}" for n in range(len(arrays))]
        loads = "".join(f"ld.param.u64 %a{n}, [{p}];\n" for n, p in enumerate(names))
        text = HEAD.format(
            params=", ".join(f".param .u64 {p}" for p in names), loads=loads, body=body
        )
        memory = machine.GlobalMemory()
        places = [memory.add_array(array) for array in arrays]
        params = [place.to_bytes(8, "little") for place in places]
        kernel = machine.load(text)["f"]
        size, grid = (threads, 1, 1), (blocks, 1, 1)
        return machine.launch(kernel, memory, grid, size, params, shared=shared)

    return executed


@pytest.fixture
def applied(run):
    """Apply to each element: `applied(instruction, result's dtype, *arrays)`."""

    def executed(instruction, result, *arrays):
        made = np.zeros(len(arrays[0]), result)
        body = "mov.u32 %w0, %ctaid.x; mov.u32 %w1, %ntid.x;\n"
        body += "mad.lo.u32 %t, %w0, %w1, %t;\n"
        names = []
        for number, array in enumerate((*arrays, made)):
            t, letter = LETTER[array.itemsize]
            if array.dtype.kind == "f" and array.itemsize > 2:
                t, letter = f"f{8 * array.itemsize}", "%f"
                letter = "%d" if array.itemsize == 8 else letter
            names.append(f"{letter}{number + 3}")
            body += f"mad.wide.u32 %b{number + 9}, %t, {array.itemsize}, %a{number};\n"
            if number < len(arrays):
                body += f"ld.global.{t} {names[-1]}, [%b{number + 9}];\n"
        body += f"{instruction} {names[-1]}, {', '.join(names[:-1])};\n"
        body += f"st.global.{t} [%b{len(arrays) + 9}], {names[-1]};\n"
        block = next(n for n in range(512, 0, -1) if len(made) % n == 0)
        run(body, *arrays, made, threads=block, blocks=len(made) // block)
        return made

    return executed


LETTER = {1: ("u8", "%h"), 2: ("u16", "%h"), 4: ("u32", "%w"), 8: ("u64", "%b")}
HEAD = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry f({params})
{{
    .reg .b64 %a<9>, %b<20>;
    .reg .b16 %h<20>;
    .reg .b32 %t, %w<40>;
    .reg .f32 %f<20>;
    .reg .f64 %d<20>;
    .reg .pred %p<20>;
    {loads}
    mov.u32 %t, %tid.x;
    {body}
    ret;
}}
"""

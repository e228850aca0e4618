"""A process of its own for tests/tune/test_compile.py: compiles in ways that the compiling worker does not.

The tests of the kernels run in Triton's interpreter, which a process is in or not. Prints one JSON value.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import torch

from sgdoctor.tune import align_kernel, kernel, operands, routing
from sgdoctor.tune.compile import Compiler, _CompileInstead
from sgdoctor.tune.space import Config, Problem

SHAPE = Problem(8, 256, 512, 2)
CONFIG = Config(64, 64, 64, 16, 4, 3)


def explored(compiler, tokens):
    """Compile what exploring launches at each batch size; return the hashes of both products."""
    found = {}
    for number in tokens:
        shapes = operands.make(SHAPE, number, device="meta")
        for gemm in ("up", "down"):
            compiler.compiled.clear()
            launched = shapes.arguments(gemm, CONFIG, routing.empty(SHAPE, number))
            kernel.invoke(compiler.exploring, launched)
            found.setdefault(gemm, set()).add(compiler.compiled[0].hash)
    return {gemm: sorted(hashes) for gemm, hashes in found.items()}


def exact(compiler, tokens):
    """Compile a batch size as a task names it, and with tensors and a routing as they are launched."""
    found = []
    for number in tokens:
        made = operands.make(SHAPE, number, device="cpu")
        (drawn,) = routing.uniform(SHAPE, number, 1, device="cpu")
        real = routing.Routing(drawn.ids, drawn.weights, drawn.experts, exact=True)
        for gemm in ("up", "up_sorted", "down"):
            named = compiler.compile(gemm, CONFIG, number).hash
            compiler.compiled.clear()
            kernel.invoke(compiler.exact, made.arguments(gemm, CONFIG, real))
            found.append([gemm, number, named, compiler.compiled[0].hash])
    return found


def alignment(_compiler, experts):
    """Compile the alignment's kernels as they are launched; return how many there were."""
    made = []
    for name in ("_reset", "_count", "_offsets", "_scatter", "_experts"):
        setattr(align_kernel, name, _CompileInstead(getattr(align_kernel, name), made))
    for number in experts:
        ids = torch.empty(7, 2, dtype=torch.int32, device="meta")
        align_kernel.Aligned(ids, number, 16).run()
    return sum(len(each.asm["cubin"]) > 0 for each in made)


def main(what, package, capability, *numbers):
    """Print what the function named ``what`` returns."""
    path = kernel.find(Path(package))
    number = int(capability)
    compiler = Compiler(str(path), dataclasses.asdict(SHAPE), (number // 10, number % 10))
    print(json.dumps(globals()[what](compiler, [int(each) for each in numbers])))


if __name__ == "__main__":
    main(*sys.argv[1:])

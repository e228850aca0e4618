"""Compiles the kernel for a GPU that need not be there: without a CUDA context, into Triton's cache.

SGLang's own launcher is called with tensors that have shapes but no memory; where it would launch, the kernel
is compiled instead. Triton decides on types, strides and divisibility as it does in the server, for every
release and quantization alike.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sgdoctor.tune import kernel
from sgdoctor.tune.space import Capability, Config, Problem

# Any number of tokens whose slots are a multiple of 16 gives the binary that serves all batch sizes.
TOKENS = 16


@dataclass(frozen=True)
class Compiled:
    """What came out: bytes of shared memory, registers and stack bytes a thread (more than 0: it spills)."""

    shared: int
    registers: int | None
    stack: int | None
    seconds: float
    hash: str


class Compiler:
    """Compiles for one problem and one GPU architecture; lives in a worker process of its own."""

    def __init__(
        self, path: str, problem: dict[str, Any], capability: Capability, *, runtime_group: bool = True
    ) -> None:
        from triton.runtime import driver

        from sgdoctor.tune import operands, routing

        self.problem = problem_from(problem)
        capability = (capability[0], capability[1])
        driver.set_active(_driver(capability))
        self.module = kernel.load(Path(path), capability, runtime_group=runtime_group)
        self.compiled: list[Any] = []
        for name in kernel.KERNELS:
            if hasattr(self.module, name):
                setattr(self.module, name, _CompileInstead(getattr(self.module, name), self.compiled))
        self.operands = operands.make(self.problem, TOKENS, device="meta")
        self.routing = routing.empty(self.problem, TOKENS)

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Compile a task's configuration and return its resources; raises what Triton raises."""
        return asdict(self.compile(task["gemm"], Config.from_list(task["config"])))

    def compile(self, gemm: str, config: Config) -> Compiled:
        """Compile one configuration."""
        self.compiled.clear()
        started = time.perf_counter()
        kernel.invoke(self.module, self.operands.arguments(gemm, config, self.routing))
        seconds = time.perf_counter() - started
        (compiled,) = self.compiled
        registers, stack = _resources(compiled.asm["cubin"])
        return Compiled(compiled.metadata.shared, registers, stack, round(seconds, 3), compiled.hash)


class _CompileInstead:
    """Stands where the kernel stood: ``kernel[grid](...)`` compiles and does not launch."""

    def __init__(self, function: Any, compiled: list[Any]) -> None:
        self.function = function
        self.compiled = compiled

    def __getitem__(self, grid: Any) -> Any:
        def compile_(*args: Any, **kwargs: Any) -> None:
            result = self.function.run(*args, grid=grid, warmup=True, **kwargs)
            self.compiled.append(result.result() if hasattr(result, "result") else result)

        return compile_


def problem_from(fields: dict[str, Any]) -> Problem:
    """Read a problem that went through JSON."""
    block = fields.get("block")
    return Problem(**{**fields, "block": tuple(block) if block else None})


def _driver(capability: Capability) -> Any:
    """Return a stand-in for Triton's driver that knows what it compiles for and can do nothing else."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class NoDevice(DriverBase):  # type: ignore[misc,unused-ignore]
        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            raise NotImplementedError(ty)

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", capability[0] * 10 + capability[1], 32)

        def get_active_torch_device(self) -> Any:
            import torch

            return torch.device("cpu")

        def get_benchmarker(self) -> Any:
            raise NotImplementedError

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, _device: int = 0) -> int:
            return 0

        def get_device_capability(self, _device: int = 0) -> Capability:
            return capability

    return NoDevice()


def _resources(cubin: bytes) -> tuple[int | None, int | None]:
    """Return (registers, stack bytes) a thread as cuobjdump reads them; nulls where Triton brought none."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            text = subprocess.run(
                [str(tool), "-res-usage", file.name], capture_output=True, text=True, timeout=30, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return None, None
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (None, None)

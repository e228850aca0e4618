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

from sgdoctor.tune import kernel, operands, routing
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

        self.problem = problem_from(problem)
        capability = (capability[0], capability[1])
        driver.set_active(_driver(capability))
        self.compiled: list[Any] = []
        self.exploring = self._load(Path(path), capability, runtime_group=runtime_group)
        self.exact = self._load(Path(path), capability, runtime_group=False)

    def _load(self, path: Path, capability: Capability, *, runtime_group: bool) -> Any:
        module = kernel.load(path, capability, runtime_group=runtime_group)
        for name in kernel.KERNELS:
            if hasattr(module, name):
                setattr(module, name, _CompileInstead(getattr(module, name), self.compiled))
        return module

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """Compile a task's configuration and return its resources; raises what Triton raises.

        A task with ``tokens`` is compiled as the server will run it at that batch size.
        """
        return asdict(self.compile(task["gemm"], Config.from_list(task["config"]), task.get("tokens")))

    def compile(self, gemm: str, config: Config, tokens: int | None = None) -> Compiled:
        """Compile one configuration: the binary that serves all groups and batch sizes, or a true one."""
        self.compiled.clear()
        started = time.perf_counter()
        exact = tokens is not None
        shapes = operands.make(self.problem, tokens or TOKENS, device="meta")
        chosen = routing.empty(self.problem, tokens or TOKENS, exact=exact)
        kernel.invoke(self.exact if exact else self.exploring, shapes.arguments(gemm, config, chosen))
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

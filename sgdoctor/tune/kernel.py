"""SGLang's own fused-MoE kernel, loaded from its file without importing SGLang (0.5.9 to 0.5.23).

Only torch and Triton are imported. The file is parsed, its imports of sglang become stubs, and it is compiled
under its own path with its own line numbers: Triton's cache key is made of the source and its first line, so
what is compiled here is what the server will find in its cache.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sgdoctor.tune.space import Capability

# Newest first: 0.5.16 and later, 0.5.11 to 0.5.15, 0.5.9 and 0.5.10.
PLACES = (
    "kernels/ops/moe/fused_moe_triton_kernels.py",
    "srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_kernels.py",
    "srt/layers/moe/fused_moe_triton/fused_moe_triton_kernels.py",
)
KERNELS = ("fused_moe_kernel", "fused_moe_kernel_gptq_awq")
INVOKE = "invoke_fused_moe_kernel"

# Where SGLang's launcher quantizes activations itself, it takes what was put here beforehand: the time
# measured is the kernel's alone, and sgl_kernel is not needed.
QUANTIZED = "sgdoctor_quantized"


class KernelNotLoaded(Exception):  # noqa: N818 (says what happened)
    """The file is not the kernel that this tuner knows."""


def find(root: Path) -> Path:
    """Return the kernel's file in ``root``, an installed or unpacked `sglang` package.

    Raises KernelNotLoaded when no place of 0.5.9 to 0.5.23 has it.
    """
    for place in PLACES:
        path = root / place
        if path.is_file() and f"def {INVOKE}" in path.read_text(encoding="utf-8"):
            return path
    raise KernelNotLoaded(f"{root} has no fused-MoE kernel where SGLang 0.5.9 to 0.5.23 keep it")


def fingerprint(path: Path) -> str:
    """Return a hash of the kernel's source: timings and configurations belong to it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def load(path: Path, capability: Capability, *, runtime_group: bool = False, pdl: bool | None = None) -> Any:
    """Return the module in ``path``, as SGLang on a GPU of ``capability`` would see it.

    ``runtime_group`` makes GROUP_SIZE_M a run-time argument, so that one binary serves all its values while
    exploring. ``pdl`` overrides whether launches overlap (0.5.19 and later do on 9.0 and newer); they do not
    with ``runtime_group``, since how they do depends on the batch size (GDC_EARLY, a constant of the binary).
    Raises KernelNotLoaded when the file has no such launcher or its import fails.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    overlap = capability[0] >= 9 if pdl is None else pdl
    stubs = _stubs(capability, pdl=overlap and not runtime_group)
    imports = _Imports()
    tree = imports.visit(tree)
    if runtime_group:
        tree = _RuntimeGroup().visit(tree)
    ast.fix_missing_locations(tree)
    name = f"sgdoctor_kernel_{fingerprint(path)}{'_group' if runtime_group else ''}"
    module = types.ModuleType(name)
    module.__file__ = str(path)
    for wanted in imports.names:
        module.__dict__[wanted] = stubs.get(wanted) or _placeholder(wanted)
    sys.modules[name] = module
    try:
        exec(compile(tree, str(path), "exec"), module.__dict__)  # noqa: S102 (the installed SGLang's own code)
    except Exception as error:
        raise KernelNotLoaded(f"{path}: {type(error).__name__}: {error}") from error
    if not hasattr(module, INVOKE):
        raise KernelNotLoaded(f"{path} has no {INVOKE}")
    return module


def invoke(module: Any, arguments: Mapping[str, Any]) -> None:
    """Call the module's launcher with those of ``arguments`` that this release has."""
    launcher = getattr(module, INVOKE)
    names = inspect.signature(launcher).parameters
    launcher(**{name: value for name, value in arguments.items() if name in names})


def invoker(module: Any) -> Callable[[Mapping[str, Any]], None]:
    """Return ``invoke`` for one module, with its signature read once."""
    launcher = getattr(module, INVOKE)
    names = frozenset(inspect.signature(launcher).parameters)

    def call(arguments: Mapping[str, Any]) -> None:
        launcher(**{name: value for name, value in arguments.items() if name in names})

    return call


def takes(module: Any, parameter: str) -> bool:
    """Whether this release's launcher has ``parameter``."""
    return parameter in inspect.signature(getattr(module, INVOKE)).parameters


class _Imports(ast.NodeTransformer):
    """Drops every import of sglang and keeps the names that it would have bound."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if not (node.level or (node.module or "").split(".")[0] == "sglang"):
            return node
        self.names += [alias.asname or alias.name for alias in node.names]
        return ast.copy_location(ast.Pass(), node)


class _RuntimeGroup(ast.NodeTransformer):
    """Takes the `constexpr` off GROUP_SIZE_M, and has Triton not specialize on its value.

    Triton compiles the text of the file, whose annotations it does not look at; it takes them from the
    function.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name in KERNELS:
            for argument in node.args.args:
                if argument.arg == "GROUP_SIZE_M":
                    argument.annotation = None
            decorator = ast.parse('triton.jit(do_not_specialize=["GROUP_SIZE_M"])', mode="eval").body
            node.decorator_list = [ast.copy_location(decorator, node.decorator_list[0])]
        return node


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def _quantized(activations: Any, *_args: Any, **_kwargs: Any) -> Any:
    return getattr(activations, QUANTIZED)


def _stubs(capability: Capability, *, pdl: bool) -> dict[str, Any]:
    quantizers = """per_token_group_quant_fp8 scaled_fp8_quant sglang_per_token_group_quant_fp8
        per_token_group_quant_int8 per_token_quant_int8 sglang_per_token_group_quant_int8""".split()
    return {
        "is_cuda": _constant(True),
        "is_sm90_supported": _constant(capability[0] == 9),
        "is_arch_support_pdl": _constant(pdl),
        "get_bool_env_var": _constant(False),
        "is_batch_invariant_mode_enabled": _constant(False),
        "cpu_has_amx_support": _constant(False),
        "get_moe_padding_size": _constant(0),
        "get_device_name": _constant(""),
        "envs": _Environment(),
        **dict.fromkeys(quantizers, _quantized),
    }


def _placeholder(name: str) -> Any:
    """Return a stand-in for a name not seen yet: no other platform, and an error when it is called."""
    if name.startswith("is_"):
        return _constant(False)

    def missing(*_args: Any, **_kwargs: Any) -> Any:
        raise KernelNotLoaded(f"the kernel calls {name} of sglang, which this tuner does not know")

    return missing


class _Environment:
    """sglang.srt.environ.envs with every variable unset."""

    def __getattr__(self, _name: str) -> Any:
        return types.SimpleNamespace(get=_constant(False))

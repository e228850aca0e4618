"""The N of int4 experts, by SGLang's own code: half their width, since two weights are in a byte.

Needs torch: `make test-kernels`.
"""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="no torch in this environment: `make test-kernels` has one")

from packaging.version import Version  # noqa: E402

from sgdoctor.upstream import moe_shapes  # noqa: E402

pytestmark = pytest.mark.kernels

EXPERTS, WIDTH, HIDDEN, GROUP = 4, 256, 512, 128
RELEASES = ("0.5.9", "0.5.12", "0.5.16", "0.5.20", "0.5.23")


def method(path, owner, name, **names):
    """Return a method of SGLang's, compiled alone out of its file."""
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    (body,) = (node.body for node in classes if node.name == owner)
    (function,) = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)
    function.args.args = [ast.arg(arg.arg) for arg in function.args.args]  # annotations name its modules
    function.returns = None
    space = {"torch": torch, **names}
    module = ast.fix_missing_locations(ast.Module([function], []))
    exec(compile(module, str(path), "exec"), space)  # noqa: S102 (the release's own code)
    return space[name]


def expected(release):
    """Return the N that sgdoctor expects."""
    model = moe_shapes.Model(
        architecture="Qwen3MoeForCausalLM", experts=EXPERTS, per_token=2, width=WIDTH, weights="int4_weight"
    )
    layout = moe_shapes.Layout(release=Version(release), vendor="nvidia", capability=Version("9.0"))
    return moe_shapes.on_one_gpu(model, layout).shape.width


@pytest.mark.parametrize("release", RELEASES)
def test_compressed_tensors_experts_on_triton(release, sglang_wheel):
    folder = sglang_wheel(release) / "sglang/srt/layers/quantization/compressed_tensors/schemes"
    convert = method(
        folder / "compressed_tensors_wNa16_moe.py",
        "CompressedTensorsWNA16TritonMoE",
        "process_weights_after_loading",
    )
    packed = 8  # as the checkpoint has them: eight weights an int32, along the width

    def parameter(rows, columns, dtype):
        return torch.nn.Parameter(torch.zeros(EXPERTS, rows, columns, dtype=dtype), requires_grad=False)

    layer = SimpleNamespace(
        w13_weight_packed=parameter(HIDDEN // packed, 2 * WIDTH, torch.int32),
        w2_weight_packed=parameter(WIDTH // packed, HIDDEN, torch.int32),
        w13_weight_scale=parameter(HIDDEN // GROUP, 2 * WIDTH, torch.float16),
        w2_weight_scale=parameter(WIDTH // GROUP, HIDDEN, torch.float16),
    )
    convert(SimpleNamespace(), layer)
    assert layer.w2_weight_packed.shape == (EXPERTS, HIDDEN, expected(release))  # E, _, N = w2.shape

"""Which GPUs of a node a server's ranks are put on.

Read in srt/entrypoints/engine.py and srt/managers/data_parallel_controller.py of 0.5.7, 0.5.12, 0.5.16 and
0.5.23; the arithmetic is the same in all 22 releases. A rank whose number no GPU has ends the server:
get_available_gpu_memory in srt/utils/common.py asserts it, or set_device raises before.
"""

from __future__ import annotations

from sgdoctor.facts import Facts

FACT = "gpu.wanted"
_FLAGS = ("arg.tp_size", "arg.pp_size", "arg.nnodes", "arg.base_gpu_id", "arg.gpu_id_step")
_DATA_PARALLEL = ("arg.enable_dp_attention", "arg.dp_size")
# Known of a server that has started, wherever its ranks went.
_STARTED = ("server.url", "kv.tokens")


def derive(facts: Facts) -> None:
    """Set gpu.wanted: one more than the largest number of a GPU that a rank of this node is given."""
    if facts.value("log.ready") or any(facts.known(name) for name in _STARTED):
        facts.set_unknown(FACT, "the server has started on the GPUs that there are")
        return
    if facts.value("gpu.vendor", "nvidia") != "nvidia":
        # One of AMD's can be several (its partition mode), and --device may name something else.
        facts.set_unknown(FACT, "only NVIDIA's GPUs are counted", ["gpu.vendor"])
        return
    if facts.value("arg.use_ray"):  # not known up to 0.5.9, which have no such flag
        facts.set_unknown(FACT, "Ray places the ranks", ["arg.use_ray"])
        return
    # Attention that runs data parallel shares the tensor parallel ranks; otherwise each replica has its own.
    shared = facts.value("arg.enable_dp_attention") or facts.value("asked.enable_dp_attention")
    inputs = [*_FLAGS, *(("arg.enable_dp_attention",) if shared else _DATA_PARALLEL)]
    if missing := facts.missing(*inputs):
        facts.set_unknown(FACT, "the flags that say it are not known", missing)
        return
    tensor, pipeline, nodes, base, step = (facts.value(name) for name in _FLAGS)
    replicas = 1 if shared else facts.value("arg.dp_size")
    if min(tensor, pipeline, nodes, step, replicas) < 1:
        facts.set_unknown(FACT, "a size below 1 cannot be meant", inputs)
        return
    pipeline_here = max(pipeline // nodes, 1)
    tensor_here = max(tensor // max(nodes // pipeline, 1), 1)
    last = base + (replicas - 1) * tensor * pipeline * step
    last += (pipeline_here - 1) * tensor_here + (tensor_here - 1) * step
    facts.derive(FACT, last + 1, inputs)

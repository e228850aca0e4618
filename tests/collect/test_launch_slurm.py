"""SLURM scripts: bash with #SBATCH lines, and srun inside."""

from __future__ import annotations

from sgdoctor.collect import launch_kinds, launch_slurm
from sgdoctor.collect.launch_containers import Mount

JOB = """#!/bin/bash
#SBATCH -J llm
#SBATCH --nodes=2
#SBATCH --ntasks-per-node 1   # one server a node
#SBATCH --gres=gpu:h200:8
export NCCL_DEBUG=INFO
#SBATCH --nodes=9
"""


def test_options_before_the_first_command():
    assert launch_slurm.options(JOB) == {
        "-J": ("llm", 2),
        "--nodes": ("2", 3),
        "--ntasks-per-node": ("1", 4),
        "--gres": ("gpu:h200:8", 5),
    }
    assert launch_slurm.options("#SBATCH -N4\n#SBATCH --exclusive\n") == {
        "--nodes": ("4", 1),
        "--exclusive": ("", 2),
    }


def test_gpus_of_a_node():
    def gpus(line: str) -> tuple[int, int] | None:
        return launch_slurm.gpus(launch_slurm.options(f"#SBATCH {line}\n"))

    assert gpus("--gres=gpu:8") == (8, 1)
    assert gpus("--gres=shard:1,gpu:a100:4(S:0-1)") == (4, 1)
    assert gpus("--gres=gpu") == (1, 1)
    assert gpus("--gpus-per-node=h100:8") == (8, 1)
    assert gpus("--gpus=16") is None  # on however many nodes


def test_the_server_behind_srun():
    srun = (
        "srun --ntasks=2 bash -c 'exec python3 -m sglang.launch_server "
        "--nnodes $SLURM_NNODES --node-rank $SLURM_NODEID'\n"
    )
    (command,) = launch_kinds.parse(JOB + srun, "job.sbatch")
    assert [(word.text, word.line, word.known) for word in command.words] == [
        ("--nnodes", 8, True),
        ("2", 3, True),
        ("--node-rank", 8, True),
        ("$SLURM_NODEID", 8, False),
    ]
    assert command.variables["NCCL_DEBUG"].value == "INFO"
    assert command.gpus == (8, 5)
    assert command.notes == ["job.sbatch:3: $SLURM_NNODES is taken from there; sbatch's own options win"]


def test_the_container_of_srun():
    srun = (
        "srun --overlap --container-image=lmsysorg/sglang:v0.5.12-cu130 \\\n"
        "  --container-mounts=/lustre/m:/models:ro,/home sglang serve /models/q\n"
    )
    (command,) = launch_kinds.parse(JOB + srun, "job.sbatch")
    assert command.container is not None
    assert command.container.image == "lmsysorg/sglang:v0.5.12-cu130"
    assert command.container.mounts == [Mount("/lustre/m", "/models"), Mount("/home", "/home")]
    assert command.network is not None
    assert command.network.reached(30000)[0] == "yes"
    (plain,) = launch_kinds.parse(JOB + "srun sglang serve m\n", "job.sbatch")
    assert plain.container is None

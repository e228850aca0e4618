"""What runs on a Ray cluster: one supervisor a GPU, with a measuring child of its own.

The supervisor never touches the GPU. A candidate that crashes or hangs takes the child with it, and is told
from the others, as on one host; only a node or a supervisor that dies is Ray's business.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgdoctor.tune import binaries
from sgdoctor.tune.pool import Pool, WorkersFailed

# How long a call keeps the supervisor busy when nothing happens, in seconds: `close` waits for it.
_WAIT = 1.0


class Supervisor:
    """A pool of one child on the GPU that Ray gave to this actor.

    ``kernel`` is the text of SGLang's kernel file, so that the node needs no SGLang; null for roles without.
    """

    def __init__(
        self,
        role: str,
        settings: Mapping[str, Any],
        kernel: str | None,
        *,
        depth: int,
        timeout: float,
        environment: Mapping[str, str],
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="sgdoctor-")
        place = Path(self.folder.name)
        self.cache = place / "triton"
        self.cache.mkdir()
        if kernel is not None:
            file = place / Path(settings["path"]).name
            file.write_text(kernel, encoding="utf-8")
            settings = {**settings, "path": str(file)}
        # Ray names a GPU as the node's own CUDA_VISIBLE_DEVICES does, also where it was told not to set that
        # variable for its workers (RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES).
        own = {"CUDA_VISIBLE_DEVICES": ",".join(_gpus()), "TRITON_CACHE_DIR": str(self.cache)}
        self.pool = Pool(role, settings, depth=depth, timeout=timeout, environment={**environment, **own})

    def about(self) -> dict[str, Any] | None:
        """Return what the child says of itself, and on which node it is; null when it is not ready yet.

        Raises WorkersFailed, with the node's address.
        """
        import ray

        address = ray.util.get_node_ip_address()
        try:
            if not self.pool.wait_ready(_WAIT):
                return None
        except WorkersFailed as error:
            raise WorkersFailed(f"Ray node {address}: {error}") from error
        node = ray.get_runtime_context().get_node_id()
        return {**(self.pool.about or {}), "node": address, "node_id": node, "supervisor": os.getpid()}

    def work(
        self, tasks: Sequence[tuple[int, Any]], files: Mapping[str, binaries.Files]
    ) -> list[tuple[int, str, Any, str]]:
        """Take up ``tasks``, with the binaries that they need; return what ended in the last second at most.

        What ended is number, ending, value and text of each.
        """
        binaries.write(self.cache, files)
        for number, task in tasks:
            self.pool.submit({**task, "number": number})
        ended = self.pool.outcomes(wait=_WAIT)
        return [(o.task["number"], o.ending, o.value, o.text) for o in ended]

    def close(self) -> None:
        """End the child and remove what was written here."""
        self.pool.close()
        self.folder.cleanup()


def _gpus() -> list[str]:
    import ray

    return [str(gpu) for gpu in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]

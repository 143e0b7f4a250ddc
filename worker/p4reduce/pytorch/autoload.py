"""Register the backend "p4reduce" of torch.distributed, for the entry point groups that torch reads.

torch.distributed.backends: from torch 2.15 on, when the name is first used. torch.backends: before, and at every
`import torch`, so this module imports nothing.
"""

from __future__ import annotations

from typing import Any, Final

FIRST_TORCH: Final = (2, 7)
"""Older versions drop the Python half of a Work that C++ holds (pytorch#146376): its wait() never ends."""


def register() -> None:
    """Make "p4reduce" a name that `init_process_group` and `new_group` take, for tensors on the CPU and on CUDA."""
    import torch.distributed as dist

    from p4reduce.pytorch.backend.options import BACKEND

    if dist.is_available() and not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


def register_early() -> None:
    """At `import torch`: do `register` where torch does not look for the name later."""
    import torch

    if torch.__version__ < "2.15":  # compared as versions
        register()


def _create(group: Any, options: Any) -> Any:
    """Make a process group. `group` is torch's description of it, `options` what the caller gave as pg_options."""
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < FIRST_TORCH:
        raise RuntimeError(
            f"the backend p4reduce needs torch {'.'.join(map(str, FIRST_TORCH))} or later, and this is "
            f"{torch.__version__}; use the DDP hook instead (p4reduce.ddp_hook)"
        )
    from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce

    return ProcessGroupP4Reduce(group, options)

"""What the sums of each training step cost, in TensorBoard."""

from __future__ import annotations

import atexit
import os
from collections import Counter
from typing import Any, Protocol

from p4reduce.pytorch.ddp import DDPState, PassReport

__all__ = ["log_passes"]


class Writer(Protocol):
    """What is called of torch.utils.tensorboard.SummaryWriter."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


def log_passes(state: DDPState, to: Writer | str | os.PathLike[str], *, first_step: int = 0) -> Writer:
    """Write the numbers of each backward pass from now on: `log_passes(state, "runs/digits")`.

    p4reduce/bytes_up and bytes_down on the wire, ms and density (`PassReport`), skipped_steps, and with a compressor
    forms/NAME, the number of parameters sent in each wire form. They are this rank's: call it on rank 0, or with a
    folder for each rank.

    `to`: a folder, or a SummaryWriter, which is returned; `first_step`: of the first pass. Raises ImportError where
    tensorboard is not installed and `to` is a folder.
    """
    writer: Writer = _summary_writer(to) if isinstance(to, str | os.PathLike) else to
    passes = 0

    def log(report: PassReport) -> None:
        nonlocal passes
        scalars: dict[str, float] = {
            "bytes_up": report.spent.bytes_up,
            "bytes_down": report.spent.bytes_down,
            "ms": 1e3 * report.seconds,
            "density": report.density,
            "skipped_steps": state.skipped_steps,
        }
        forms = Counter(form for bucket in report.buckets for form in bucket.forms.values())
        scalars |= {f"forms/{form.value}": count for form, count in forms.items()}
        for name, value in scalars.items():
            writer.add_scalar(f"p4reduce/{name}", value, first_step + passes)
        passes += 1

    state.after_each_pass(log)
    return writer


def _summary_writer(folder: str | os.PathLike[str]) -> Writer:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError(
            f"torch's SummaryWriter cannot be imported: pip install tensorboard, or give a writer ({error})"
        ) from error
    made: Any = SummaryWriter(os.fspath(folder))  # type: ignore[no-untyped-call, unused-ignore]
    atexit.register(made.close)
    writer: Writer = made
    return writer

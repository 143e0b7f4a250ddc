"""What `init_process_group(pg_options=)` takes for the backend "p4reduce"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from p4reduce.codecs.formats import Bits
    from p4reduce.compressors import Compressor

BACKEND: Final = "p4reduce"
"""The name that `init_process_group` takes."""
SUBGROUP_SLOTS = 32
"""Slots of the job of a `new_group`: a switch has about a thousand for all jobs."""
BROADCAST_BYTES = 1 << 20
"""Bytes below which gloo's broadcast is faster."""


@dataclass(frozen=True)
class Options:
    """Settings of one process group; all ranks must give the same, but for `switch`."""

    controller: str | None = None
    """HOST:PORT of the job service; default: P4REDUCE_CONTROLLER, else one that the launch starts (p4reduce/launch)."""
    job: str | None = None
    """A job that exists already; default: rank 0 makes one, which ends with the group."""
    token: str | None = None
    """The token of a private `job`; default: P4REDUCE_TOKEN."""
    switch: str | None = None
    """The switch that this rank sends to, as in `p4reduce.join`; default: P4REDUCE_SWITCH. Ranks may differ in it."""
    slots: int | None = None
    """Slots of the job that rank 0 makes; default: 128 to 256, or what is free, and 32 for a `new_group`."""
    bits: Bits | None = None
    """Bits of a number on the way, in sums of floats: 32, 16 or 8. Default: 32 for float32 and complex64, 16 for
    float16 and bfloat16."""
    float_sums: Literal["auto", "switch", "gloo"] = "auto"
    """Over the switch a sum's error follows from the largest of 32 to 128 neighbouring numbers (docs/torch-backend.md).
    "auto": over gloo where that would make too many numbers of float32 in 32 bits 0. "gloo": always, for tensors that
    need floating-point additions. Sums of int32 always take the switch."""
    compressor: Compressor | str | None = None
    """The compressor of the gradients that `all_reduce` and `reduce_scatter` sum (docs/torch-backend.md#compression),
    or its text, as "adacomp:linear=50". Default of the group of all ranks: P4REDUCE_COMPRESSOR; else none."""
    compress_bytes: int = 1 << 14
    """Bytes from which on a sum is compressed."""

    def __post_init__(self) -> None:
        from p4reduce.codecs.formats import check_bits  # not when torch is imported, which imports this module

        check_bits(self.bits)
        if self.float_sums not in ("auto", "switch", "gloo"):
            raise ValueError(f'float_sums is {self.float_sums!r}; give "auto", "switch" or "gloo"')
        if self.slots is not None and self.slots < 1:
            raise ValueError(f"slots is {self.slots}; a job needs at least 1")
        if self.compress_bytes < 0:
            raise ValueError(f"compress_bytes is {self.compress_bytes}; it is a number of bytes")
        if self.compressor is not None and self.float_sums == "gloo":
            raise ValueError('float_sums="gloo" has no compressor: give one of the two')

    def compressor_of(self, *, world: bool) -> Compressor | None:
        """Return the compressor of a group, with `world` that of all ranks; ValueError for a text that names none."""
        from p4reduce_runtime.environment import P4REDUCE_COMPRESSOR

        text = self.compressor
        if text is None and world and self.float_sums != "gloo":
            text = P4REDUCE_COMPRESSOR.read() or None
        if not isinstance(text, str):
            return text
        from p4reduce.compressors.interface import by_text

        return by_text(text)

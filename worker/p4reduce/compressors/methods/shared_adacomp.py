"""SharedAdaComp: AdaComp's selection, made by one rank a step for all (ours; the rotation of leaders is ScaleCom's).

It costs the same bytes down for any number of ranks, and learns more slowly than AdaComp: a step carries the elements
of one rank's choice instead of N.
"""

from __future__ import annotations

from typing import ClassVar

from p4reduce.compressors.forms import Form
from p4reduce.compressors.methods.adacomp import AdaComp
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import register


@register("shared-adacomp")
class SharedAdaComp(AdaComp):
    """AdaComp in the form shared."""

    forms: ClassVar[tuple[Form, ...]] = (Form.SHARED,)

    def __init__(self, policy: Policy | None = None, *, value_bits: int = 16, warmup_steps: int = 0) -> None:
        """`policy` gives L_T; `value_bits` (8, 16 or 32) is the width of a value at a chosen element."""
        super().__init__(policy, Form.SHARED, value_bits=value_bits, warmup_steps=warmup_steps)

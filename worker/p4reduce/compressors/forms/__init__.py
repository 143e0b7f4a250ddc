"""The wire forms: how a compressed gradient is sent. One file each: its messages, its segments, its answers, its cost.

A form is added with a file beside this one, a member of `Form` and its line in `WIRE_FORMS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from p4reduce.compressors.forms.gather import GatherForm
from p4reduce.compressors.forms.interface import WireForm
from p4reduce.compressors.forms.shared import SharedForm
from p4reduce.compressors.forms.sum import SumForm


class Form(StrEnum):
    """How a compressed gradient is sent."""

    SUM = "sum"
    GATHER = "gather"
    SHARED = "shared"


WIRE_FORMS: Final[Mapping[Form, WireForm]] = {
    Form.SUM: SumForm(),
    Form.GATHER: GatherForm(),
    Form.SHARED: SharedForm(),
}


def second_collective(forms: Iterable[Form]) -> str:
    """Return what the second collective of a bucket in these forms is for; empty when there is none."""
    purposes = [WIRE_FORMS[form].second for form in forms]
    return ", ".join(dict.fromkeys(purpose for purpose in purposes if purpose is not None))


__all__ = ["WIRE_FORMS", "Form", "second_collective"]

"""NoCompression: every gradient is sent dense, as float32."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from p4reduce.compressors.interface import PerParameter, register
from p4reduce.compressors.messages import Form
from p4reduce.compressors.policy import DENSE, Policy
from p4reduce.compressors.step import Answer, Compressed, Step


@register("none")
class NoCompression(PerParameter):
    """All parameters dense."""

    forms: ClassVar[tuple[Form, ...]] = (Form.SUM,)

    def __init__(self) -> None:
        super().__init__(self.default_policy(), Form.SUM)

    @classmethod
    def default_policy(cls) -> Policy:
        return Policy(conv=DENSE, linear=DENSE, recurrent=DENSE, embedding=DENSE)

    def compress_one(self, step: Step) -> NoReturn:
        raise ValueError(f"{step.key!r} is sent dense: nothing is compressed")

    def decompress_one(self, step: Step, compressed: Compressed, answer: Answer) -> NoReturn:
        raise ValueError(f"{step.key!r} is sent dense: nothing is compressed")

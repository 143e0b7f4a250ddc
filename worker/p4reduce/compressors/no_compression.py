"""NoCompression: every gradient travels whole, as float32."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from p4reduce.compressors.interface import Compressor, Form, Message
from p4reduce.compressors.policy import DENSE, Policy
from p4reduce_contracts.jobs.lease import Lease


class NoCompression(Compressor):
    """All parameters dense."""

    name: ClassVar[str] = "none"
    forms: ClassVar[tuple[Form, ...]] = (Form.SUM,)

    def __init__(self) -> None:
        super().__init__(self.default_policy(), Form.SUM)

    @classmethod
    def default_policy(cls) -> Policy:
        return Policy(conv=DENSE, linear=DENSE, recurrent=DENSE, embedding=DENSE)

    def compress(self, key: str, gradient: torch.Tensor, form: Form, lease: Lease) -> Message:
        raise ValueError(f"{key!r} is sent dense: nothing is compressed")

    def decompress(self, key: str, message: Message, answer: Any, lease: Lease) -> torch.Tensor:
        raise ValueError(f"{key!r} is sent dense: nothing is compressed")

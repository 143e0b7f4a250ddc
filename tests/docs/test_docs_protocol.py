"""The example of docs/protocol.md is what two ranks and a switch send."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import numpy as np

from p4reduce.errors import Reason
from p4reduce.protocol.call import CodecId, Kind
from p4reduce.protocol.refusal import code_of
from p4reduce.testing.local_group import EPOCH, JOB, LocalGroup
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.geometry import SMALL

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
PARTS = re.compile(r"\b[0-9a-f]{32,}\b")
SECRETS = (0x1111111111111111, 0x2222222222222222)


class Recorder(ReferenceSwitch):
    """Notes what comes in and goes out, as (of which rank, whether it goes out, frame)."""

    def __init__(self) -> None:
        super().__init__(SMALL, 1)
        self.add_job(JOB, EPOCH, 2, 0, 1, SECRETS)
        self.frames: list[tuple[int, bool, str]] = []

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        answers = list(super().process(rank, payload))
        self.frames += [(rank, False, payload.hex()), *((to, True, answer.hex()) for to, answer in answers)]
        return answers


def test_the_frames_of_the_example() -> None:
    switch, numbers = Recorder(), [np.array([1, -0.5], np.float32), np.array([2, 0], np.float32)]
    leases = [
        Lease(
            JOB,
            "example",
            EPOCH,
            rank,
            2,
            1,
            SMALL.columns,
            SMALL.block_words,
            switches=(LeasedSwitch(secret=secret),),
            first_round=7,
        )
        for rank, secret in enumerate(SECRETS)
    ]
    with LocalGroup(2, switch=switch, leases=leases, window=1) as group:
        group.run(lambda comm: comm.all_reduce(numbers[comm.rank]))
        sent = sorted(switch.frames[:8], key=lambda frame: (frame[2][16:24], frame[1], frame[0]))
    shown = "".join(PARTS.findall(PAGE.partition("### Example")[2].partition("### Refusal")[0]))
    assert shown == "".join(frame for rank, out, frame in sent if (rank, out) != (1, True))  # RESULTs are alike
    assert f"{zlib.crc32(b'float32[2]||1'):08x}" in shown


def test_the_numbers_of_a_call() -> None:
    (kinds,) = re.findall(r"^Kinds are (.*?); codecs (.*?);\s+reasons (.*?)\. The text", PAGE, re.MULTILINE | re.DOTALL)
    listed = [[int(number) for number in re.findall(r"(?:^|, )(\d+) ", part.replace("\n", " "))] for part in kinds]
    assert listed == [sorted(Kind), sorted(CodecId), [code_of(reason) for reason in Reason]]

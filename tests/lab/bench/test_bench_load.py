"""The frames that switches are loaded with: the program takes every one of them, round after round."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce_contracts import artifacts
from p4reduce_contracts.wire.checksum import internet_checksum
from p4reduce_controller.config import SwitchConfig
from p4reduce_lab.bench.load import ENCAP_BYTES, Contributions, ethernet_addresses, headers, make_grant
from p4reduce_runtime import pipeline_folders
from p4reduce_switch.program import Program
from rigs import wire
from rigs.granted import admit


@pytest.mark.parametrize(("ranks", "slots"), [(4, 3), (2, 1)])
def test_every_frame_counts_and_every_round_ends(ranks: int, slots: int) -> None:
    folder, switch = pipeline_folders.find("small"), SwitchConfig()
    loaded = Program((folder / pipeline_folders.PROGRAM).read_bytes())
    grant = make_grant(ethernet_addresses(ranks), slots)
    admit(loaded, grant, switch)
    shape = artifacts.geometry(folder)
    frames = Contributions(shape, grant, switch, encapsulated=True)
    results = 0
    for _ in range(3):
        frames.move_on()
        for number, frame in enumerate(frames.bytes):
            results += len(loaded.process(grant.children[number % ranks].address.ingress_port, frame.tobytes()))
    assert results == 3 * len(frames)
    drops = loaded.counters["MainIngress.drops"]
    assert [drops.read(reason)[0] for reason in range(drops.size)] == [0] * drops.size
    assert loaded.counters["MainIngress.contributions"].read(grant.job_id)[0] == 3 * len(frames)


def test_an_ipv4_header_checksum_of_zero_is_written_as_zero() -> None:
    address, switch = ethernet_addresses(1)[0], SwitchConfig()
    payload_bytes = next(size for size in range(65508) if header_sum(headers(address, switch, size)) == 0xFFFF)
    assert headers(address, switch, payload_bytes)[24:26] == b"\0\0"


def header_sum(headers: bytes) -> int:
    """The one's complement sum of an IPv4 header without its checksum."""
    return 0xFFFF - internet_checksum(headers[14:24] + headers[26:34])


def test_header_checksums_stay_right_as_rounds_go_by() -> None:
    shape = artifacts.geometry(pipeline_folders.find("small"))
    grant = make_grant(ethernet_addresses(2), 2)
    frames = Contributions(shape, grant, SwitchConfig(), encapsulated=True)
    frames._number = 0xFFFE  # across the end of 16 bits
    for _ in range(4):
        frames.move_on()
        for row in np.unique(frames.bytes, axis=0):
            wire.unpack(shape, row.tobytes()[ENCAP_BYTES:])  # raises FrameError where one is wrong

"""Committing the pipeline again gives fresh registers: what a controller that starts relies on."""

from __future__ import annotations

import pytest

from conformance import bmv2
from conformance.case import Write
from conformance.embedded import EmbeddedTarget
from conformance.network import Network
from conformance.replay import Target, replay
from p4reduce_contracts import wire


def check(target: Target) -> None:
    network = Network("small", 2)
    admissions = [network.admission(rank) for rank in (0, 1)]
    entries = tuple(("insert", entry) for entry in [*network.switching(), *network.job(), *admissions])
    keys = (wire.KEY_NONE,) * network.geometry.columns
    contribution = network.contribution(0, 0, 7, keys, {0: bytes(network.geometry.block_bytes)})
    case = network.case("fresh_registers", [Write(entries), contribution, contribution])
    first = replay(case, target).steps
    assert first[1] == () and len(first[2]) == 1, "a contribution is taken in, its duplicate answered with PENDING"
    assert replay(case, target).steps == first, "the contribution of before the commit must be forgotten"


def test_embedded_switch() -> None:
    with EmbeddedTarget() as target:
        check(target)


@pytest.mark.bmv2
@pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH")
def test_bmv2() -> None:
    with bmv2.Bmv2Target() as target:
        check(target)

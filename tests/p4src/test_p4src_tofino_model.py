"""What the model of a Tofino shows beside the frames of all programs: CPU port, meter, digest, the largest job."""

from __future__ import annotations

import pytest

from p4reduce_controller.switches.program_names import TOFINO
from p4reduce_runtime.p4runtime.entries import MeterConfig, MeterEntry
from rigs import wire
from rigs.limits import LIMIT_S
from rigs.pipeline import rank_port, udp_frame
from rigs.tofino_model import NEEDS_MODEL, ModelRig, TofinoModel, check_answers, check_controller_port

pytestmark = NEEDS_MODEL


@pytest.mark.parametrize("seed", range(4))
def test_damaged_frames_get_the_answers_of_v1model(tofino_model: TofinoModel, seed: int) -> None:
    """10,000 frames in all, a third of them with a flipped bit."""
    check_answers(tofino_model, seed, 2_800)


def test_a_hello_goes_to_the_controller_and_a_packet_out_to_its_port(tofino_model: TofinoModel) -> None:
    check_controller_port(tofino_model)


def test_hellos_beyond_a_port_s_rate_are_dropped(tofino_model: TofinoModel) -> None:
    """Two at once, and one a second: of forty in a row, which take a second or a few, most are beyond it."""
    rig = ModelRig(tofino_model, 2)
    hello = udp_frame(0, wire.pack_hello(7, 5))
    slow = MeterConfig(1, 2, 1, 2)
    tofino_model.client.write([("modify", MeterEntry(TOFINO.hello_rate, rank_port(0), slow))])
    for _ in range(40):
        assert rig.process(rank_port(0), hello) == []
    for _ in range(5):
        assert rig.process(rank_port(1), udp_frame(1, wire.pack_hello(7, 6))) == []
    passed = 40 - rig.drops()["RATE"]
    assert 2 <= passed < 40
    found = [tofino_model.packets.get(timeout=LIMIT_S)[1]["ingress_port"] for _ in range(passed + 5)]
    assert sorted(found) == [rank_port(0)] * passed + [rank_port(1)] * 5


def test_a_new_address_is_reported(tofino_model: TofinoModel) -> None:
    rig = ModelRig(tofino_model, 1)
    mac = 0x02000000AB01
    frame = 0x02000000AB02.to_bytes(6, "big") + mac.to_bytes(6, "big") + b"\x88\xb5" + bytes(46)
    rig.process(4, frame)
    while tofino_model.digests.get(timeout=LIMIT_S) != (mac, 4):
        pass  # of other tests' addresses


def test_the_largest_job(tofino_model: TofinoModel) -> None:
    """Eight ranks, and all slots: the last one sums, and the one behind it is none."""
    ranks = 8
    rig = ModelRig(tofino_model, ranks, slot_count=tofino_model.slots)
    last = tofino_model.slots - 1
    block, total = (word.to_bytes(4, "big") * rig.geometry.block_words for word in (3, 3 * ranks))
    for slot in (0, last):
        for rank in range(ranks - 1):
            assert rig.send(rank, rig.contribution(slot=slot, blocks={0: block})) == []
        results = rig.send(ranks - 1, rig.contribution(slot=slot, blocks={0: block}))
        assert [port for port, _ in results] == [rank_port(rank) for rank in range(ranks)]
        for _, frame in results:
            assert wire.unpack(rig.geometry, frame[42:]).blocks == total
    assert rig.send(0, rig.contribution(slot=last + 1)) == []
    assert rig.drops() == {"SLOT": 1}
    assert rig.job_count("contributions") == 2 * ranks and rig.job_count("results") == 2

"""What the embedded switch tells of each packet, against BMv2's recorded log; a trace changes no answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance import recording, stf, traces
from conformance.case import PROGRAMS, Arrive, Write, insert
from conformance.corpus import small_programs
from conformance.exceptions import ANY_ORDER, DIFFERENT
from conformance.replay import differences
from p4reduce_runtime.p4runtime.entries import MulticastGroup, TableEntry
from p4reduce_runtime.p4runtime.schema import Schema
from rigs.entity_text import clone_session

CASES = small_programs()
RECORDED = traces.recorded()
SAMPLES = traces.recorded_samples()
OTHERWISE = {
    **DIFFERENT,
    "masked_key": "keys in an invalid header: 0 here, an earlier packet's on BMv2",
    "varbit": "conditions over an invalid header: 0 here, an earlier packet's on BMv2",
}
"""Cases in which the steps differ, and why."""


def test_every_small_program_and_every_kind_of_line_is_recorded() -> None:
    assert set(RECORDED) == set(CASES)
    assert len(RECORDED) - len(OTHERWISE) >= 100
    lines = {line for _, log in RECORDED.values() for copies in log.values() for copy in copies for line in copy}
    assert [kind for kind in traces.KINDS if not any(line.startswith(kind) for line in lines)] == []
    assert len(SAMPLES) >= 100 and set(traces.SAMPLES_OTHERWISE) < set(SAMPLES)


@pytest.mark.parametrize("name", list(CASES))
def test_steps_are_those_of_bmv2(name: str) -> None:
    digests, theirs = RECORDED[name]
    assert digests == CASES[name].digests(), "another build of the program: run `make conformance` where BMv2 is"
    ours, answers = traces.of_embedded_switch(CASES[name])
    known = recording.load(name)
    assert name in DIFFERENT or not differences(known.steps, answers, known.answers, any_order=name in ANY_ORDER)
    if name in OTHERWISE:
        assert ours != theirs, f"the exception is not needed: {OTHERWISE[name]}"
    else:
        assert ours == theirs


@pytest.mark.p4c
@pytest.mark.slow
@pytest.mark.skipif("P4C_SAMPLES" not in os.environ, reason="P4C_SAMPLES does not name p4c's samples")
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_steps_of_p4cs_samples_are_those_of_bmv2(name: str, tmp_path: Path) -> None:
    case, digest = traces.sample(traces.samples()[name], tmp_path)
    recorded, theirs = SAMPLES[name]
    if digest != recorded:
        pytest.skip("another version of the sample or of p4c than recorded: `traces.py --samples` where BMv2 is")
    ours, _ = traces.of_embedded_switch(case)
    assert (traces.log_digest(ours) == theirs) == (name not in traces.SAMPLES_OTHERWISE)


def test_lines_of_an_stf_file_become_steps() -> None:
    schema = Schema.from_p4info((PROGRAMS / "tables.p4info.txtpb").read_text())
    lines = (
        "add ternary_ 7 keys.a:0x1* hdr.keys.b:0x00ff set(value:0x2)  # a comment|add lpm_ c:0x0a000000/8 a:4 none()|"
    )
    lines += (
        "mirroring_add 5 4|mc_mgrp_create 9|mc_node_create 400 6|mc_node_associate 9 0|packet 1 01 0203|expect 1 01"
    )
    keys = {"hdr.keys.a": (16, 0xF0), "hdr.keys.b": (255, 0xFFFF)}
    assert list(stf.steps(lines.replace("|", "\n"), schema)) == [
        insert(TableEntry("MainIngress.ternary_", keys, "MainIngress.set", {"value": 2}, (1 << 16) - 7)),
        insert(TableEntry("MainIngress.lpm_", {"hdr.keys.c": (0x0A000000, 8), "hdr.keys.a": 4}, "MainIngress.none")),
        insert(clone_session(5, (4, 0))),
        insert(MulticastGroup(9)),
        Write((("modify", MulticastGroup(9, ((6, 400),))),)),
        Arrive(1, bytes([1, 2, 3])),
    ]
    with pytest.raises(ValueError, match="not known: remove all"):
        list(stf.steps("remove all", schema))

"""The corpus itself: complete, large enough, and able to find a difference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from conformance import bmv2, recording
from conformance.case import PROGRAMS, Answers, Arrive, Outputs, Write, step_to_json
from conformance.corpus import all_cases, small_programs
from conformance.embedded import EmbeddedTarget
from conformance.exceptions import ANY_ORDER, DIFFERENT
from conformance.replay import differences
from p4reduce_runtime.p4runtime.entries import TableEntry
from rigs.p4rt import primary

BEYOND = sorted(path.stem for path in (PROGRAMS / "beyond").glob("*.p4"))
"""Programs that p4c compiles, the embedded switch runs, and BMv2 does not."""
REFUSED = {
    "stack_index_key": "a key of table MainIngress.t in a stack element",
    "union_variable": "a variable of a header union's type",
}
"""Programs that p4c compiles, and neither switch takes -> words of the embedded switch's message."""


def test_every_small_program_has_a_case_and_a_recording() -> None:
    programs = {path.stem for path in PROGRAMS.glob("*.p4")} - {"construct"}
    assert programs == {case.json.stem for case in small_programs().values()}
    assert programs == {path.stem for path in PROGRAMS.glob("*.json")}
    assert len(programs) >= 40


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_program_without_defined_behaviour_is_refused_with_the_construct(name: str) -> None:
    with EmbeddedTarget() as target, primary(target.address) as client, pytest.raises(grpc.RpcError) as refused:
        client.set_program(PROGRAMS / "refused" / name)
    assert REFUSED[name] in refused.value.details()


def test_every_refused_program_is_listed() -> None:
    assert {path.stem for path in (PROGRAMS / "refused").glob("*.p4")} == set(REFUSED)


@pytest.mark.bmv2
@pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.parametrize(
    ("folder", "name"), [("beyond", name) for name in BEYOND] + [("refused", name) for name in REFUSED]
)
def test_bmv2_refuses_the_program_or_ends(folder: str, name: str) -> None:
    """It refuses the program, or ends over the first frame."""
    refused = pytest.raises((grpc.RpcError, bmv2.Bmv2Error))
    with bmv2.Bmv2Target() as target, primary(target.address) as client, refused:
        client.set_program(PROGRAMS / folder / name)
        target.pipeline_set()
        target.arrive(1, bytes(8))


def test_exceptions_are_of_cases_that_exist() -> None:
    assert set(ANY_ORDER) | set(DIFFERENT) <= set(all_cases())


@pytest.mark.parametrize("name", sorted(ANY_ORDER))
def test_reordered_frames_of_an_any_order_case_are_a_difference(name: str) -> None:
    """Some frames that one step sends out of one port differ; test_conformance_replay.py compares with BMv2."""
    known = recording.load(name)
    backwards = Answers(tuple(answer[::-1] for answer in known.answers.steps))
    forwards = Answers(known.answers.steps)
    assert differences(known.steps, backwards, forwards)
    assert not differences(known.steps, backwards, forwards, any_order=True)


@pytest.mark.parametrize("name", recording.names())
def test_the_recording_is_canonical(name: str) -> None:
    known = recording.load(name)
    assert recording.to_text(known) == recording.read_text(name)
    assert bmv2.release(known.target) == known.target, "a recording names the version, not the build"


def test_the_text_of_a_step_does_not_depend_on_the_order_of_parameters() -> None:
    keys, params = {"ether.dst": 1, "ether.type": 2}, {"b": 3, "a": 4}
    texts = {
        json.dumps(
            step_to_json(
                Write((("insert", TableEntry("t", {k: keys[k] for k in ks}, "a", {p: params[p] for p in ps})),))
            )
        )
        for ks, ps in ((keys, params), (reversed(keys), reversed(params)))
    }
    assert len(texts) == 1


def changed(*outputs: Outputs) -> Answers:
    return Answers(outputs)


SENT: Outputs = ((1, b"one"), (1, b"two"), (2, b"three"))


@pytest.mark.parametrize(
    "answers",
    [
        changed(SENT[:2]),
        changed((*SENT, (3, b"four"))),
        changed((SENT[1], SENT[0], SENT[2])),
        changed((SENT[0], SENT[1], (2, b"thref"))),
        changed((SENT[0], SENT[1], (3, b"three"))),
        replace(changed(SENT), packet_ins=(({"ingress_port": 1}, b"x"),)),
        replace(changed(SENT), digests=(("learn", (1, 2)),)),
        replace(changed(SENT), counters={"drops": {"1": (1, 64)}}),
    ],
)
def test_a_difference_is_found(answers: Answers) -> None:
    steps = (Arrive(1, b"in"),)
    assert not differences(steps, changed((SENT[2], *SENT[:2])), changed(SENT)), "order across ports is free"
    assert differences(steps, changed(SENT), answers)


def test_a_refused_write_is_compared_by_its_code() -> None:
    steps = (Write(()),)
    ours = Answers((("0 ALREADY_EXISTS",),))
    assert not differences(steps, ours, Answers((("0 UNKNOWN",),))), "PI has no code for some reasons"
    assert differences(steps, ours, Answers((("0 NOT_FOUND",),)))
    assert differences(steps, ours, Answers((("1 ALREADY_EXISTS",),)))
    assert differences(steps, ours, Answers(((),)))


def test_recordings_stay_below_the_size_limit() -> None:
    folder = Path(recording.RECORDINGS)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4 << 20

"""The recorder, with the embedded switch in BMv2's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import bmv2, record, recording
from conformance.case import Arrive, Outputs
from conformance.corpus import all_cases
from conformance.embedded import EmbeddedTarget
from conformance.exceptions import ANY_ORDER

CRASHES, FINE = "register_bounds", "mux"


FATAL = all_cases()[CRASHES].steps[0]


class CrashingTarget(EmbeddedTarget):
    """Ends over the first frame of the case that crashes BMv2."""

    def arrive(self, port: int, frame: bytes) -> Outputs:
        if Arrive(port, frame) == FATAL:
            raise bmv2.Bmv2Error("BMv2 ended with status -6 over the frame")
        return super().arrive(port, frame)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of recordings; both cases have one."""
    monkeypatch.setattr(bmv2, "SWITCH", "simple_switch_grpc")
    monkeypatch.setattr(bmv2, "build", lambda: "0")
    monkeypatch.setattr(bmv2, "Bmv2Target", CrashingTarget)
    for name in (CRASHES, FINE):
        (tmp_path / f"{name}.jsonl.gz").write_bytes((recording.RECORDINGS / f"{name}.jsonl.gz").read_bytes())
    monkeypatch.setattr(recording, "RECORDINGS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("check", [False, True])
def test_a_crash_of_bmv2_ends_its_case_alone(folder: Path, check: bool, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: (folder / f"{name}.jsonl.gz").read_bytes() for name in (CRASHES, FINE)}
    assert record.main([CRASHES, FINE, *["--check"] * check]) == 1
    after = {name: (folder / f"{name}.jsonl.gz").read_bytes() for name in (CRASHES, FINE)}
    assert after[CRASHES] == before[CRASHES]
    assert (after[FINE] == before[FINE]) is check, "the case after it is recorded all the same"
    said = capsys.readouterr().out
    assert f"{CRASHES}: BMv2 ended with status -6" in said
    assert said.rstrip().endswith(f"whose recordings are as they were: {CRASHES}")


class OtherOrderTarget(EmbeddedTarget):
    """Sends the copies of a frame to the ports in the opposite order; the frames of one port keep their order."""

    def arrive(self, port: int, frame: bytes) -> Outputs:
        return tuple(sorted(super().arrive(port, frame), key=lambda output: -output[0]))


class ReversedTarget(EmbeddedTarget):
    """Sends the copies of a frame in the opposite order."""

    def arrive(self, port: int, frame: bytes) -> Outputs:
        return super().arrive(port, frame)[::-1]


@pytest.mark.parametrize(
    ("name", "another"),
    [("l2", OtherOrderTarget), ("copies", OtherOrderTarget), *((name, ReversedTarget) for name in sorted(ANY_ORDER))],
)
def test_another_build_with_the_same_answers_writes_the_same_bytes(
    name: str, another: type[EmbeddedTarget], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / f"{name}.jsonl.gz"
    written = []
    for build, target in (("1.15.5-693e69e6", EmbeddedTarget), ("1.15.5-9674187f", another)):
        monkeypatch.setattr(bmv2, "build", lambda build=build: build)
        monkeypatch.setattr(bmv2, "Bmv2Target", target)
        assert record.main([name]) == 0
        written.append(path.read_bytes())
        path.unlink()
    assert written[0] == written[1]

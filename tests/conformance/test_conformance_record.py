"""The recorder, with the embedded switch in BMv2's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import bmv2, record, recording
from conformance.case import Arrive, Outputs
from conformance.corpus import all_cases
from conformance.embedded import EmbeddedTarget

CRASHES, FINE = "register_bounds", "mux"


FATAL = all_cases()[CRASHES].steps[0]


class CrashingTarget(EmbeddedTarget):
    """Ends over the first frame of the case that crashes BMv2."""

    def arrive(self, port: int, frame: bytes) -> Outputs:
        if Arrive(port, frame) == FATAL:
            raise bmv2.Bmv2Failed("BMv2 ended with status -6 over the frame")
        return super().arrive(port, frame)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where recordings are; both cases have one."""
    monkeypatch.setattr(bmv2, "SWITCH", "simple_switch_grpc")
    monkeypatch.setattr(bmv2, "version", lambda: "0")
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


def test_without_a_crash_all_is_well(folder: Path) -> None:
    assert record.main([FINE]) == 0

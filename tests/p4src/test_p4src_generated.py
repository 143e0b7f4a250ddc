"""Frames that p4testgen makes from Tofino's program: it knows what a frame does, except what a checksum decides."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from rigs.limits import LIMIT_S
from rigs.p4src import load
from rigs.pipeline import PipelineRig
from rigs.tna_rig import TnaRig
from rigs.tofino_model import INCLUDE, NEEDS_MODEL, ModelRig, TofinoModel, check_frames
from rigs.traffic import PORTS

build_tofino = load("build_tofino")
CHIP, TESTS = "tofino1-4x8", 150
pytestmark = [
    *NEEDS_MODEL,
    pytest.mark.skipif(shutil.which("p4testgen") is None, reason="p4testgen, with its target tofino, is not on PATH"),
]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The tests, as lines of the backend STF: `add` of entries, one `packet`, and `expect` if it leaves."""
    folder = tmp_path_factory.mktemp("generated")
    command = ["p4testgen", "--target", "tofino", "--arch", "tna", "--std", "p4-16", *build_tofino.defines(CHIP)]
    command += ["-I", INCLUDE, "-I", str(build_tofino.core_include()), "--test-backend", "STF", "--seed", "1"]
    command += ["--path-selection", "RANDOM_BACKTRACK", "--max-tests", str(TESTS), "--out-dir", str(folder)]
    done = subprocess.run([*command, "tna/main.p4"], cwd=build_tofino.P4SRC, capture_output=True, timeout=10 * LIMIT_S)
    assert done.returncode == 0, done.stderr[-1000:]
    found = [path.read_text() for path in sorted(folder.glob("*.stf"))]
    assert len(found) > TESTS / 2
    return found


def frame_of(test: str) -> tuple[int, bytes]:
    port, data = re.findall(r"^packet (\d+) (\w+)$", test, re.MULTILINE)[0]
    return int(port), bytes.fromhex(data)


def test_the_interpreter_does_what_p4testgen_expects(generated: list[str]) -> None:
    for test in generated:
        program = TnaRig(CHIP, 0).tna
        for table, keys, action, values in re.findall(r"^add (\S+) (.*?) (\S+)\((.*)\)$", test, re.MULTILINE):
            match, given = (tuple(int(value, 16) for value in re.findall(r":(\w+)", text)) for text in (keys, values))
            program.insert(table, match, action, given)
        expected = re.findall(r"^expect (\d+) (\S+)\$$", test, re.MULTILINE)
        sent = [(str(port), data.hex().upper()) for port, data in program.process(*frame_of(test))]
        assert [port for port, _ in sent] == [port for port, _ in expected], test
        for (_, data), (_, pattern) in zip(sent, expected, strict=True):
            assert re.fullmatch(pattern.replace("*", "."), data), test


def test_the_frames_get_the_answers_of_v1model(generated: list[str], tofino_model: TofinoModel) -> None:
    """At hosts' ports, and without what no Ethernet frame holds."""
    frames = [(PORTS[port % len(PORTS)], frame[:1500]) for port, frame in map(frame_of, generated)]
    check_frames(PipelineRig(CHIP, 2), ModelRig(tofino_model, 2), frames)

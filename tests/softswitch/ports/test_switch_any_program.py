"""`p4reduce switch run --pipeline PROGRAM.json`: what the README of the switch shows, and what is said if it fails."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from conformance.case import PROGRAMS
from p4reduce_controller.p4runtime.client import Client
from p4reduce_switch.run import SwitchError, SwitchOptions, _files, run_switch
from rigs import entity_text
from rigs.system import Process

I = "MainIngress."  # noqa: E741


def copied(folder: Path, ending: str = ".p4info.txtpb") -> Path:
    """The action selector's program as a P4 user has it: two files."""
    program = folder / "my.json"
    shutil.copy(PROGRAMS / "action_selector.json", program)
    shutil.copy(PROGRAMS / "action_selector.p4info.txtpb", program.with_suffix(ending))
    return program


@pytest.mark.processes
def test_a_program_of_the_user_is_loaded_from_its_files(tmp_path: Path) -> None:
    program = copied(tmp_path)
    where = ("--listen", "127.0.0.1:0", "--p4runtime", "127.0.0.1:0")
    process = Process(tmp_path / "log", "switch", "run", "--pipeline", str(program), *where)
    try:
        assert f"pipeline {program}" in process.first_line
        with Client(process.address("P4Runtime")) as switch:
            found = switch.get_pipeline()
            assert found is not None and found.device_config == program.read_bytes()
            texts = [entity_text.member("members", port, (I + "send", port)) for port in (1, 2)]
            texts.append(entity_text.group("members", 1, [(1, 3, 0), (2, 1, 0)]))
            texts.append(entity_text.entry("t", entity_text.prefix(0x10, 4), entity_text.to_group(1)))
            switch.write([("insert", entity_text.entity(switch.schema, text)) for text in texts])
    finally:
        assert process.end(signal.SIGINT) == 0


@pytest.mark.parametrize("ending", [".p4info.txtpb", ".p4info.txt"])
def test_the_p4info_beside_a_program_has_one_of_two_names(tmp_path: Path, ending: str) -> None:
    program = copied(tmp_path, ending)
    assert _files(str(program)) == (program, program.with_suffix(ending))


def test_the_error_names_a_missing_file(tmp_path: Path) -> None:
    program = tmp_path / "my.json"

    def fails(message: str) -> None:
        with pytest.raises(SwitchError, match=message):
            run_switch(SwitchOptions(str(program), "127.0.0.1:0", p4runtime="127.0.0.1:0"))

    fails("there is no file .*my.json; write it with: p4c-bm2-ss")
    program.write_text("{}")
    fails("there is no P4Info beside .*my.json; write it with: p4c-bm2-ss --p4runtime-files .*my.p4info.txtpb")
    info = program.with_suffix(".p4info.txtpb")
    info.write_text("nonsense")
    fails("cannot be loaded: not a P4Info")
    info.write_text("pkg_info {}")
    fails("cannot be loaded")

"""A pipeline's P4Info says which target it is for: names, admission entries and what the switch loads go by that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.program_names import TOFINO, V1MODEL
from p4reduce_runtime.pipeline_folders import GEOMETRY, P4INFO, PROGRAM, PipelineNotFoundError, find
from rigs.tna_switch import ARTIFACTS, CHIPS, pipeline_folder


@pytest.mark.parametrize("name", ["default", "small"])
def test_bmv2_and_the_embedded_switch_load_json(name: str) -> None:
    pipeline = pipelines.read(find(name))
    assert pipeline.names is V1MODEL
    assert pipeline.device_config == (find(name) / PROGRAM).read_bytes()
    assert pipeline.max_children == 32


@pytest.mark.parametrize(("chip", "by_frame", "by_registers"), [("tofino1-4x8", 8, 32), ("tofino2-4x16", 16, 8)])
def test_a_tofinos_registers_limit_the_number_of_ranks(
    tmp_path: Path, chip: str, by_frame: int, by_registers: int
) -> None:
    pipeline = pipelines.read(find(pipeline_folder(tmp_path / "pipeline", chip)))
    assert pipeline.names is TOFINO
    assert pipeline.geometry.max_world_size == by_frame
    assert pipeline.max_children == by_registers


def test_a_tofinos_pipeline_is_stratums_message(tmp_path: Path) -> None:
    """Byte for byte: protobuf's fields 1 to 3, the third with fields 1 to 4."""
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    (folder / "bfrt.json").write_bytes(b"{}")
    (folder / "context.json").write_bytes(b"[0]")
    (folder / "tofino.bin").write_bytes(b"\xff\x00")
    profile = b"\x0a\x04pipe" + b"\x12\x03[0]" + b"\x1a\x02\xff\x00" + b"\x22\x04\x00\x01\x02\x03"
    wanted = b"\x0a\x08p4reduce" + b"\x12\x02{}" + b"\x1a" + bytes((len(profile),)) + profile
    assert pipelines.read(folder).device_config == wanted


@pytest.mark.parametrize("chip", CHIPS)
def test_the_artifacts_of_a_tofino_lack_the_binary(chip: str) -> None:
    with pytest.raises(
        PipelineNotFoundError, match=r"lacks .*tofino\.bin; .*`make p4-tofino`, which writes .* out/tofino"
    ):
        find(ARTIFACTS / chip)


@pytest.mark.parametrize("file", ["context.json", "bfrt.json", "tofino.bin"])
def test_a_file_that_a_tofino_lacks_is_named(tmp_path: Path, file: str) -> None:
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    (folder / file).unlink()
    with pytest.raises(PipelineNotFoundError, match=f"cannot use the pipeline in .*{file}"):
        pipelines.read(folder)


@pytest.mark.parametrize("arch", ["psa", ""])
def test_another_architecture_is_refused(tmp_path: Path, arch: str) -> None:
    shutil.copy(find("small") / GEOMETRY, tmp_path)
    (tmp_path / P4INFO).write_text(f'pkg_info {{ arch: "{arch}" }}')
    with pytest.raises(
        PipelineNotFoundError, match=f"architecture '{arch}', .*v1model, tna and t2na; .*`make p4-tofino`"
    ):
        pipelines.read(tmp_path)


def test_a_p4info_with_the_compilers_own_externs_is_refused(tmp_path: Path) -> None:
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    (folder / P4INFO).write_text('pkg_info { arch: "tna" }')
    with pytest.raises(PipelineNotFoundError, match=r"no register .*rank_tags.* --p4runtime-force-std-externs"):
        pipelines.read(folder)


def test_sizes_that_are_not_the_programs_are_refused(tmp_path: Path) -> None:
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    (folder / GEOMETRY).write_text("columns = 4\nblock_words = 8\nslots = 2048\n")
    with pytest.raises(PipelineNotFoundError, match="its program has 1024 slots, and its sizes say 2048"):
        pipelines.read(folder)

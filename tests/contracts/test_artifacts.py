"""Finding a compiled pipeline and reading its sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4reduce_contracts.artifacts import SwitchGeometry, geometry
from p4reduce_runtime.pipeline_folders import PipelineNotFoundError, find

SIZES = "columns = 4\nblock_words = 8\nslots = 16\n"


def make_pipeline(root: Path, name: str, sizes: str = SIZES) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "p4reduce.json").write_text("{}")
    (folder / "p4reduce.p4info.txtpb").write_text("")
    (folder / "geometry.toml").write_text(sizes)
    return folder


def test_a_pipeline_is_found_by_name_in_the_first_root_that_has_it(tmp_path: Path) -> None:
    first = make_pipeline(tmp_path / "first", "small")
    make_pipeline(tmp_path / "second", "small")
    other = make_pipeline(tmp_path / "second", "other")
    roots = (tmp_path / "first", tmp_path / "second")
    assert find("small", roots) == first
    assert find("other", roots) == other


def test_a_pipeline_is_found_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_pipeline(tmp_path, "mine")
    assert find(folder, ()) == find(str(folder), ()) == folder
    monkeypatch.chdir(tmp_path)
    assert find("mine", ()) == Path("mine")


def test_an_unknown_name_lists_the_known(tmp_path: Path) -> None:
    make_pipeline(tmp_path, "small")
    make_pipeline(tmp_path, "default")
    with pytest.raises(PipelineNotFoundError, match="no pipeline 'large'; known are default, small"):
        find("large", (tmp_path,))
    with pytest.raises(PipelineNotFoundError, match="none is installed"):
        find("large", ())
    with pytest.raises(PipelineNotFoundError, match="no pipeline folder"):
        find(tmp_path / "large", (tmp_path,))


def test_the_error_names_the_files_that_a_folder_lacks(tmp_path: Path) -> None:
    folder = make_pipeline(tmp_path, "half")
    (folder / "p4reduce.json").unlink()
    with pytest.raises(
        PipelineNotFoundError, match=r"lacks p4reduce\.json or, of a Tofino, tofino\.bin; .*`make p4-tofino`"
    ):
        find("half", (tmp_path,))
    (folder / "tofino.bin").write_bytes(b"")
    assert find("half", (tmp_path,)) == folder
    (folder / "geometry.toml").unlink()
    with pytest.raises(PipelineNotFoundError, match=r"lacks geometry\.toml"):
        find("half", (tmp_path,))


def test_sizes_are_read(tmp_path: Path) -> None:
    sizes = geometry(make_pipeline(tmp_path, "small"))
    assert sizes == SwitchGeometry(columns=4, block_words=8, slots=16)
    assert sizes.max_world_size == 8
    assert SwitchGeometry(8, 32, 1024).max_world_size == 1024


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("columns = 4\nblock_words = 8\n", r"geometry\.toml: the file: Object missing required field `slots`"),
        (SIZES.replace("4", "9"), r"geometry\.toml: columns: Expected `int` <= 8"),
        (SIZES.replace("8", "'8'"), "block_words: Expected `int`, got `str`"),
        ("columns", r"geometry\.toml: not valid TOML"),
    ],
)
def test_impossible_sizes_are_refused(tmp_path: Path, sizes: str, message: str) -> None:
    with pytest.raises(PipelineNotFoundError, match=message):
        geometry(make_pipeline(tmp_path, "odd", sizes))

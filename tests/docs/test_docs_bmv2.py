"""docs/bmv2.md names the BMv2 that the recordings are of."""

from __future__ import annotations

import re
from pathlib import Path

from conformance import recording

PAGE = (Path(__file__).parents[2] / "docs/bmv2.md").read_text()


def test_the_page_and_the_recordings_name_the_same_version() -> None:
    row = re.search(r"^- BMv2 (\d+(?:\.\d+)+),", PAGE, re.MULTILINE)
    assert row is not None, "the list has a line for BMv2 that begins with its version"
    assert {recording.load(name).target for name in recording.names()} == {f"simple_switch_grpc {row[1]}"}

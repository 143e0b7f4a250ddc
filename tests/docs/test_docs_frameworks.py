"""docs/frameworks.md shows lines of the scripts that tests/worker/frameworks runs."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/frameworks.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"`(tests/worker/frameworks/\w+\.py)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("script", "block"), SHOWN, ids=[script for script, _ in SHOWN])
def test_quoted_lines_are_in_the_script(script: str, block: str) -> None:
    lines = [line for line in (ROOT / script).read_text(encoding="utf-8").splitlines() if line]
    shown = [line for line in block.splitlines() if line]  # methods have one empty line between them, functions two
    runs = ("\n".join(lines[at : at + len(shown)]) for at in range(len(lines)))
    assert any(textwrap.dedent(run).splitlines() == shown for run in runs)


def test_every_block_names_its_script() -> None:
    assert len(SHOWN) == PAGE.count("```python")
    assert "examples/slurm.sbatch" in PAGE and (ROOT / "examples/slurm.sbatch").exists()

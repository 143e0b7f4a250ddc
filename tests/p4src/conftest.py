"""The programs that tests of frames run on: v1model, TNA interpreted, and TNA on the model of the chip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from rigs.pipeline import PipelineRig
from rigs.tna_rig import TnaRig
from rigs.tofino_model import ModelRig, TofinoModel, compiled, running_model

_RIGS: Final = {"v1model": partial(PipelineRig, "small"), "tofino": partial(TnaRig, "tofino1-4x8")}


@pytest.fixture(scope="module")
def tofino_model(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[TofinoModel]:
    """The model of a chip with the program: Tofino 1, CPU port PCIe, unless the module says CHIP, ETHERNET_CPU_PORT."""
    chip, cpu_port = getattr(request.module, "CHIP", "tofino1-4x8"), getattr(request.module, "ETHERNET_CPU_PORT", None)
    pipeline = compiled(chip, tmp_path_factory.getbasetemp(), cpu_port)
    with running_model(chip, tmp_path_factory.mktemp("model"), pipeline, cpu_port) as running:
        yield running


@pytest.fixture
def rig_of(target: str, request: pytest.FixtureRequest) -> Callable[..., PipelineRig]:
    """Makes rigs of `target`, one of rigs.tofino_model.TARGETS: of a number of ranks, and a parent."""
    if target == "tofino-model":
        return partial(ModelRig, request.getfixturevalue("tofino_model"))
    return _RIGS[target]

"""A compiled pipeline: what its switch loads, and what the controller calls and writes there.

The architecture that a pipeline's P4Info names decides all that differs between targets: v1model
is BMv2's and the embedded switch's, TNA and T2NA are a Tofino's, behind one of two P4Runtime servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from p4reduce_contracts.artifacts import SwitchGeometry, geometry
from p4reduce_contracts.wire.numbers import MAX_CHILDREN
from p4reduce_controller.config import STRATUM, SwitchConfig, TofinoServer
from p4reduce_controller.p4runtime.tofino_config import PIPELINE_CONFIG
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.switches.entries import tofino, v1model
from p4reduce_controller.switches.program_names import TO_PARENT, TOFINO, V1MODEL, P4Names
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4runtime.entries import MulticastGroup, TableEntry
from p4reduce_runtime.p4runtime.schema import parse_p4info
from p4reduce_runtime.pipeline_folders import P4INFO, PROGRAM, PipelineNotFoundError


class GrantEntries(NamedTuple):
    """What a switch holds for one job: `replies` address frames to its children and parent, `admission` admits theirs.

    No frame may be admitted before replies to it can be addressed: `replies` are inserted first and deleted last.
    """

    replies: list[TableEntry | MulticastGroup]
    admission: list[TableEntry]


@dataclass(frozen=True)
class Pipeline:
    """A compiled program. `p4info` and `device_config` are what P4Runtime gives a switch."""

    geometry: SwitchGeometry
    p4info: p4i.P4Info
    device_config: bytes
    names: P4Names
    admission: Callable[[Grant], list[TableEntry]]
    """The target's entries that admit frames of a job's children and parent; `entries` has them."""
    max_children: int
    """The most ranks and switches that contribute to a job's slots."""

    def entries(self, grant: Grant, switch: SwitchConfig) -> GrantEntries:
        """Return all entries of a grant."""
        replies: list[TableEntry | MulticastGroup] = [
            *v1model.members(grant, switch, self.names),
            *v1model.groups(grant),
        ]
        return GrantEntries(replies, self.admission(grant))


def read(folder: Path, tofino_server: TofinoServer = STRATUM) -> Pipeline:
    """Read the pipeline in `folder`. Raises PipelineNotFoundError, which says what to do."""
    sizes = geometry(folder)
    try:
        p4info = parse_p4info((folder / P4INFO).read_text(encoding="utf-8"))
        match p4info.pkg_info.arch:
            case "v1model":
                _check_version(p4info, V1MODEL, "make p4")
                admission = partial(v1model.admission, names=V1MODEL)
                return Pipeline(sizes, p4info, (folder / PROGRAM).read_bytes(), V1MODEL, admission, MAX_CHILDREN)
            case "tna" | "t2na":
                registers = tofino.Registers.of(p4info)
                _check_version(p4info, TOFINO, "make p4-tofino")
                if registers.slots != sizes.slots:
                    raise ValueError(f"its program has {registers.slots} slots, and its sizes say {sizes.slots}")
                admission = partial(tofino.admission, names=TOFINO, registers=registers)
                most = min(MAX_CHILDREN, registers.max_children)
                p4info, device_config = PIPELINE_CONFIG[tofino_server](p4info, folder)
                return Pipeline(sizes, p4info, device_config, TOFINO, admission, most)
            case other:
                raise PipelineNotFoundError(
                    f"cannot use the pipeline in {folder}: its P4Info is of the architecture {other!r}, and this "
                    "controller drives v1model, tna and t2na; compile p4src with `make p4` or `make p4-tofino`"
                )
    except (OSError, ValueError) as error:
        raise PipelineNotFoundError(f"cannot use the pipeline in {folder}: {error}") from None


def _check_version(p4info: p4i.P4Info, names: P4Names, build: str) -> None:
    admit = [action for action in p4info.actions if action.preamble.name == names.admit_rank]
    if not any(param.name == TO_PARENT for action in admit for param in action.params):
        raise ValueError(
            f"its action {names.admit_rank} has no parameter {TO_PARENT}, so it is of an earlier version; compile "
            f"p4src with `{build}`"
        )

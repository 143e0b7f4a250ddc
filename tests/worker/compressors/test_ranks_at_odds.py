"""Ranks whose compressors or gradients differ all get an error, over a switch and in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressor, OmniReduce
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.errors import CollectiveMismatchError
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce.testing.local_group import LocalGroup
from rigs.limits import LIMIT_S
from rigs.ranks import MAKERS, gradients_of


def settled(name: str, change: Callable[[dict[str, Any]], object]) -> list[Compressor]:
    """Return two ranks after a step, of which the second has loaded a state that was changed."""
    compressors = [MAKERS[name]() for _ in range(2)]
    exchange_all(compressors, [gradients_of(rank, 0) for rank in range(2)], groups(2))
    state = compressors[1].state_dict()
    change(state)
    compressors[1].load_state_dict(state)
    return compressors


PAIRS: dict[str, Callable[[], list[Compressor]]] = {
    "momentum": lambda: [AdaComp(momentum=momentum) for momentum in (0.9, 0.8)],
    "method": lambda: [AdaComp(form="gather"), OmniReduce()],
    "scale": lambda: settled("adacomp, sum", lambda state: state["scales"].update({"fc.weight": 7.0})),
    "steps of AdaComp": lambda: settled("adacomp, sum", lambda state: state["steps"].update({"fc.weight": 0})),
    "steps of ScaleCom": lambda: settled("scalecom, 32 bits", lambda state: state["steps"].update({"fc.weight": 0})),
    "parameters": lambda: [AdaComp() for _ in range(2)],
}
"""What differs, and the compressors of two ranks."""


@pytest.mark.parametrize("differs", PAIRS)
def test_ranks_at_odds_get_an_error(differs: str) -> None:
    given = [gradients_of(rank, 1) for rank in range(2)]
    if differs == "parameters":
        given[1]["further"] = torch.ones(3, 3)

    def refused(comm: Communicator) -> None:
        with pytest.raises(CollectiveMismatchError, match="the ranks called different collectives"):
            all_reduce_compressed(comm, compressors[comm.rank], given[comm.rank])

    compressors = PAIRS[differs]()
    with LocalGroup(2, timeout_s=LIMIT_S) as group:
        group.run(refused)
    with pytest.raises(AssertionError, match="the ranks ask for different collectives"):
        exchange_all(compressors, given, groups(2))

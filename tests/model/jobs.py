"""The jobs that are searched, each with the faults that its network may cause, and the mutants that must be caught.

The number of nodes grows about tenfold with each further fault, so each job is searched with several small sets of
faults. `small` ones take seconds together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from model.calls import Generation, Refusal, Sum, generation
from model.search import Faults, Job
from model.switch import (
    CompiledSwitch,
    LeafAsRoot,
    LeafWithAnotherPartial,
    SideBySide,
    SwitchMLRule,
    without_round_check,
)
from rigs.tree import TREES, Shape, TreeRig

EPOCH: Final = 5


@dataclass(frozen=True)
class Searched:
    """A job, the faults it is searched with, and the switch; `small` faults are those that `make test` searches."""

    name: str
    generations: tuple[Generation, ...]
    small: tuple[Faults, ...]
    large: tuple[Faults, ...] = ()
    make_switch: Callable[[Sequence[Generation]], CompiledSwitch] = CompiledSwitch

    def job(self, faults: Faults) -> Job:
        return Job(self.generations, faults, self.make_switch)


def _dense(ranks: int, blocks: int, slots: int = 1, digit: int = 1) -> Sum:
    return Sum(blocks, (tuple(range(blocks)),) * ranks, slots, digit)


def _one_lease(ranks: int, slots: int, *calls: Sum | Refusal) -> tuple[Generation, ...]:
    return (generation(ranks, slots, EPOCH, calls),)


def _two_leases(second_epoch: int, second_secret: int, shape: Shape | None = None) -> tuple[Generation, ...]:
    """Two ranks whose job is reset in its only collective; its second lease sums other numbers."""
    return (
        generation(2, 1, EPOCH, (_dense(2, 1),), secret=1, shape=shape),
        generation(2, 1, second_epoch, (_dense(2, 1, digit=2),), secret=second_secret, shape=shape),
    )


BESIDE: Final = (0, 1)
"""The numbers of switches side by side."""


def _side_by_side(
    *calls: Sum | Refusal, slots: int = 2, second_epoch: int = 0, second: Sequence[int] = BESIDE
) -> tuple[Generation, ...]:
    """Two ranks at two switches side by side; with a `second_epoch` the job is reset, and goes on over `second`."""
    first = generation(2, slots, EPOCH, calls, switches=BESIDE)
    if not second_epoch:
        return (first,)
    again = _dense(2, 5, 2, digit=2)
    return first, generation(2, slots * len(second) // 2, second_epoch, (again,), secret=2, switches=second)


def _in_another_order(generations: tuple[Generation, ...]) -> tuple[Generation, ...]:
    """Turn the switches of rank 1's lease round."""
    (given,) = generations
    first, second = given.leases
    return (Generation((first, replace(second, switches=second.switches[::-1])), given.calls),)


def _tree(name: str, slots: int, *calls: Sum | Refusal) -> tuple[Generation, ...]:
    shape = TREES[name]
    return (generation(TreeRig("small", shape).world_size, slots, EPOCH, calls, shape=shape),)


def _over(name: str, **options: Sequence[int]) -> Callable[[Sequence[Generation]], CompiledSwitch]:
    return partial(CompiledSwitch, shape=TREES[name], **options)


LOSS, COPY, TIMER = Faults(losses=1), Faults(copies=1), Faults(timers=1)
TWO = Faults(losses=1, copies=1), Faults(losses=1, timers=1), Faults(copies=1, timers=1)
EACH = Faults(losses=1, copies=1, timers=1)

JOBS: Final = (
    Searched(
        "2 ranks, 1 slot, 1 column, 1 round of blocks",
        _one_lease(2, 1, _dense(2, 1)),
        small=(LOSS, COPY, TIMER, Faults(flips=1), *TWO),
        large=(
            Faults(losses=3, copies=3, timers=1),
            Faults(losses=2, copies=2, timers=2),
            Faults(losses=1, copies=1, flips=1),
        ),
    ),
    Searched(
        "2 ranks, 1 slot, 2 columns, 2 rounds of blocks, sparse",
        _one_lease(2, 1, Sum(8, ((0, 4, 5), (0, 5)), 1)),
        small=(LOSS, COPY, TIMER),
        large=(Faults(losses=2, copies=2, timers=1), Faults(losses=1, flips=1), Faults(copies=1, flips=1)),
    ),
    Searched(
        "2 ranks, 1 slot, 3 rounds of blocks, no rank holds all",
        _one_lease(2, 1, Sum(12, ((0, 8), (4, 8)), 1)),
        small=(LOSS, COPY, TIMER),
        large=(Faults(losses=2, copies=2, timers=1), Faults(losses=1, copies=1, timers=2)),
    ),
    Searched(
        "2 ranks, 1 slot, 3 collectives",
        _one_lease(2, 1, _dense(2, 1), _dense(2, 1), _dense(2, 1)),
        small=(LOSS, COPY, TIMER),
        large=(Faults(losses=2, copies=2, timers=1), Faults(losses=1, copies=1, timers=2)),
    ),
    Searched(
        "2 ranks, 2 slots, 2 rounds of blocks",
        _one_lease(2, 2, Sum(16, ((0, 4, 8, 12), (0, 12)), 2)),
        small=(LOSS,),
        large=(*TWO, Faults(losses=2), EACH),
    ),
    Searched(
        "2 ranks, 1 slot that splits into 2 after 6 rounds of blocks, and one more collective",
        _one_lease(2, 2, _dense(2, 36), _dense(2, 1)),
        small=(LOSS, COPY),
        large=(TIMER, *TWO),
    ),
    Searched(
        "2 ranks, 2 slots, a refused collective and one more",
        _one_lease(2, 2, Refusal(1, Sum(8, ((0, 4), (0,)), 2)), Sum(8, ((0, 4), (0,)), 2)),
        small=(LOSS, COPY, TIMER),
        large=(EACH, Faults(losses=2, copies=2)),
    ),
    Searched(
        "3 ranks, 1 slot, 1 round of blocks",
        _one_lease(3, 1, _dense(3, 1)),
        small=(LOSS, COPY),
        large=(Faults(losses=2, copies=1, timers=1), Faults(losses=2, copies=2), Faults(losses=1, copies=2, timers=1)),
    ),
    Searched(
        "3 ranks, 1 slot, 2 collectives, sparse",
        _one_lease(3, 1, Sum(8, ((0,), (4,), (0, 4)), 1), Sum(1, ((0,), (), ()), 1)),
        small=(COPY,),
        large=(*TWO, Faults(losses=2), EACH),
    ),
    Searched(
        "2 ranks, new leases in a new epoch",
        _two_leases(EPOCH + 1, 2),
        small=(Faults(leases=1), Faults(leases=1, copies=1)),
        large=(Faults(leases=1, losses=1, copies=1, timers=1), Faults(leases=1, copies=3)),
    ),
    Searched(
        "2 ranks, new leases in the same epoch of a switch that was started again",
        _two_leases(EPOCH, 2),
        small=(Faults(leases=1), Faults(leases=1, copies=1)),
        large=(Faults(leases=1, losses=1, copies=1, timers=1), Faults(leases=1, copies=3)),
    ),
    Searched(
        "tree of 2 leaves of 1 rank, 1 slot, 2 rounds of blocks, sparse",
        _tree("2x1", 1, Sum(8, ((0, 4), (4,)), 1)),
        small=(LOSS, COPY, TIMER, Faults(flips=1), *TWO, Faults(losses=2)),
        large=(EACH, Faults(losses=1, flips=1), Faults(losses=3), Faults(losses=2, copies=2)),
        make_switch=_over("2x1"),
    ),
    Searched(
        "tree of 2 leaves of 1 rank, 1 slot, 2 collectives, the first refused",
        _tree("2x1", 1, Refusal(1, _dense(2, 1)), _dense(2, 1)),
        small=(LOSS, COPY, TIMER),
        large=(*TWO, EACH),
        make_switch=_over("2x1"),
    ),
    Searched(
        "tree of 2 leaves of 1 rank, new leases in the same epoch of switches that were started again",
        _two_leases(EPOCH, 2, TREES["2x1"]),
        small=(Faults(leases=1),),
        large=(Faults(leases=1, copies=1), Faults(leases=1, losses=1), Faults(leases=1, losses=1, copies=1)),
        make_switch=_over("2x1"),
    ),
    Searched(
        "tree of 2 leaves of 2 ranks, 1 slot, 1 round of blocks",
        _tree("2x2", 1, _dense(4, 1)),
        small=(LOSS, COPY, TIMER),
        large=(*TWO, Faults(copies=2)),
        make_switch=_over("2x2"),
    ),
    Searched(
        "2 ranks, 2 switches side by side of 1 slot, 1 round of blocks",
        _side_by_side(_dense(2, 5, 2)),
        small=(LOSS, COPY),
        large=(TIMER, *TWO, Faults(losses=2), EACH),
        make_switch=SideBySide,
    ),
    Searched(
        "2 ranks, 2 switches side by side, of which one is started again, new leases at both",
        _side_by_side(_dense(2, 5, 2), second_epoch=EPOCH + 1),
        small=(Faults(leases=1),),
        large=(Faults(leases=1, copies=1), Faults(leases=1, losses=1)),
        make_switch=partial(SideBySide, restarted=(0,)),
    ),
    Searched(
        "2 ranks, 2 switches side by side, of which one is lost, new leases at the other",
        _side_by_side(_dense(2, 5, 2), second_epoch=EPOCH + 1, second=(1,)),
        small=(Faults(leases=1),),
        large=(Faults(leases=1, copies=1), Faults(leases=1, losses=1)),
        make_switch=SideBySide,
    ),
)

MUTANTS: Final = (
    Searched(
        "the rule of SwitchML's paper: two versions without lock step",
        _one_lease(2, 1, _dense(2, 1), _dense(2, 1)),
        small=(COPY, TIMER),
        make_switch=SwitchMLRule,
    ),
    Searched(
        "lock step without the comparison of rounds",
        _one_lease(2, 1, Sum(8, ((0, 4), (0, 4)), 1)),
        small=(COPY, TIMER),
        make_switch=partial(CompiledSwitch, mutate=without_round_check),
    ),
    Searched("leases of one epoch with the same secrets", _two_leases(EPOCH, 1), small=(Faults(leases=1),)),
    Searched(
        "a leaf that answers its ranks as the root",
        _tree("2x1", 1, _dense(2, 1)),
        small=(Faults(),),
        make_switch=partial(LeafAsRoot, shape=TREES["2x1"]),
    ),
    Searched(
        "links between switches with the same secrets in two leases, which is not to check the parent's",
        _two_leases(EPOCH, 2, TREES["2x1"]),
        small=(Faults(leases=1),),
        make_switch=_over("2x1", uplink_secrets=(7, 7)),
    ),
    Searched(
        "a leaf that sends up another partial sum than the stored one",
        _tree("2x2", 1, _dense(4, 1)),
        small=(LOSS,),
        make_switch=partial(LeafWithAnotherPartial, shape=TREES["2x2"]),
    ),
    Searched(
        "switches side by side in another order on one rank",
        _in_another_order(_side_by_side(_dense(2, 5, 2))),
        small=(Faults(),),
        make_switch=SideBySide,
    ),
    Searched(
        "an epoch again for two switches side by side of which one was started again",
        _side_by_side(_dense(2, 5, 2), second_epoch=EPOCH),
        small=(Faults(leases=1),),
        make_switch=partial(SideBySide, restarted=(0,)),
    ),
)

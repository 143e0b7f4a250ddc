"""Time a frame against the number of slots and of ranks: it should not grow with either."""

from __future__ import annotations

from functools import partial

from p4reduce_lab.bench.case import Case, Run, Series, Threshold
from p4reduce_lab.bench.cases.program import EMBEDDED, prepare
from p4reduce_lab.bench.numbers import in_turn

SLOTS, RANKS = (1, 16, 64, 256, 1024), (2, 4, 8, 16, 32)
QUICK_SLOTS, QUICK_RANKS = (1, 64, 1024), (2, 32)
_USUAL_SLOTS, _USUAL_RANKS = 64, 4
_FRAMES = 16 * 1024
FLAT = Threshold("time a frame, 1 to 1024 slots and 2 to 32 ranks: least / most", 1 / 1.5)


def measure(run: Run) -> None:
    """Measure all points in turn."""
    slots, ranks = (QUICK_SLOTS, QUICK_RANKS) if run.quick else (SLOTS, RANKS)
    points = [(count, _USUAL_RANKS) for count in slots]
    points += [(_USUAL_SLOTS, count) for count in ranks if (_USUAL_SLOTS, count) not in points]
    runners = {str(point): prepare(point[1], point[0]) for point in points}
    found = in_turn({name: partial(runner.cpu_seconds, _FRAMES) for name, runner in runners.items()}, run.repetitions)
    for slot_count, rank_count in points:
        values = [1e9 * seconds for seconds in found[str((slot_count, rank_count))]]
        at: dict[str, float | str] = {"ranks": rank_count}
        at |= {"slots": slot_count} if rank_count == _USUAL_RANKS else {}
        what = f"{slot_count} slots, {rank_count} ranks, full frames"
        run.add(Series(what, EMBEDDED, "in one process", "CPU ns a frame", values, at))
    least = [min(found[str(point)]) for point in points]
    run.ratio(FLAT.name, [min(least)], [max(least)])
    run.note(
        "The threshold is about the least time of each point: noise only adds. Results are one a frame on average, "
        "whatever the number of ranks."
    )


CASE = Case(
    "flat", "time a frame against 1 to 1024 slots and 2 to 32 ranks, in one process", measure, thresholds=(FLAT,)
)

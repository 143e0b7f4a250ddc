"""Time a frame in the executors against the number of slots and of ranks: it should not grow with either."""

from __future__ import annotations

from functools import partial

from p4reduce_lab.bench.batches import Runner
from p4reduce_lab.bench.case import Case, Run, Series, Threshold
from p4reduce_lab.bench.cases.executors import COMPILED, PYTHON, executor_names, prepare
from p4reduce_lab.bench.numbers import in_turn

SLOTS, RANKS = (1, 16, 64, 256, 1024), (2, 4, 8, 16, 32)
QUICK_SLOTS, QUICK_RANKS = (1, 64, 1024), (2, 32)
_USUAL_SLOTS, _USUAL_RANKS = 64, 4
_FRAMES = {PYTHON: 512, COMPILED: 16 * 1024}
FLAT = Threshold("time a frame, 1 to 1024 slots and 2 to 32 ranks: least / most", 1 / 1.5)


def measure(run: Run) -> None:
    """Measure all points of an executor in turn; the threshold is about the compiled one, if there is one."""
    slots, ranks = (QUICK_SLOTS, QUICK_RANKS) if run.quick else (SLOTS, RANKS)
    points = [(count, _USUAL_RANKS) for count in slots]
    points += [(_USUAL_SLOTS, count) for count in ranks if (_USUAL_SLOTS, count) not in points]
    least: dict[str, list[float]] = {}
    for name in executor_names(run):
        runners: dict[tuple[int, int], Runner] = {}
        for slot_count, rank_count in points:
            runner = prepare(run, name, rank_count, slot_count)
            if runner is None:
                break
            runners[slot_count, rank_count] = runner
        else:
            frames = _FRAMES.get(name, 512)
            found = in_turn(
                {str(p): partial(runner.cpu_seconds, frames) for p, runner in runners.items()}, run.repetitions
            )
            least[name] = [min(found[str(point)]) for point in points]
            for slot_count, rank_count in points:
                values = [1e9 * seconds for seconds in found[str((slot_count, rank_count))]]
                at: dict[str, float | str] = {"ranks": rank_count}
                at |= {"slots": slot_count} if rank_count == _USUAL_RANKS else {}
                what = f"{slot_count} slots, {rank_count} ranks, full frames"
                run.add(Series(what, name, "in one process", "CPU ns a frame", values, at))
    judged = COMPILED if COMPILED in least else PYTHON
    run.ratio(FLAT.name, [min(least[judged])], [max(least[judged])])
    run.note(
        f"The threshold is about executor {judged}, the least time of each point: noise only adds. Results are one a "
        "frame on average, whatever the number of ranks."
    )


CASE = Case(
    "flat", "time a frame against 1 to 1024 slots and 2 to 32 ranks, in one process", measure, thresholds=(FLAT,)
)

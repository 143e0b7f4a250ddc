"""Trainings until a quality is reached, over shaped links: a case for each model, link and place of the switches.

First DistributedDataParallel over gloo trains every seed to the end, over links without a limit. The median of the
final qualities, less a tolerance, is the target of all variants, which then train the same seeds in turn over the
shaped links. Each rank tests its share of the test data; the clock stops meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Findings, Run, Series, Threshold, show
from p4reduce_lab.bench.cluster import IN_BRIDGE, PLACEMENTS, Cluster, Placement, running_cluster
from p4reduce_lab.bench.grid import GRID
from p4reduce_lab.bench.links import LINKS, MBIT_100, VETH, Link
from p4reduce_lab.report import Table, picture
from p4reduce_lab.study.grid import TASKS

NAME = "time-to-accuracy"
RANKS = 4
GLOO, FP16, POWERSGD, EIGHT = "gloo", "gloo fp16", "gloo PowerSGD", "p4reduce 8"
AUTO, ADACOMP = "p4reduce auto", "p4reduce AdaComp"
HEADINGS = {
    GLOO: ("gloo", "#b0b4ba"),
    FP16: ("gloo fp16", "#5b6068"),
    POWERSGD: ("PowerSGD", "#3a9a5b"),
    "p4reduce dense": ("float32", "#9cc4e4"),
    "p4reduce 16": ("16 bits", "#2a78b5"),
    EIGHT: ("8 bits", "#123f63"),
    AUTO: ('"auto"', "#f2b483"),
    ADACOMP: ("AdaComp, short bins", "#e2711d"),
}
"""The variants, with their headings in the table of all cells and their colours in the picture."""
ALONE = "no exchange"
TUNED = {POWERSGD: (1, 2, 4), ADACOMP: (50, 100, 200)}
"""The ranks of PowerSGD, and AdaComp's elements a bin, that train the first seeds; the quickest trains the others."""
SEEDS = (0, 1, 2)
_WARM_UP_SEED = 99
_WARM_UP_STEPS, _TIMED_STEPS = 20, 40
_QUICK_STEPS, _QUICK_TESTS = 24, 4
MOST_STEPS = 1.15
"""Steps to the target for each of gloo's."""
REACHED, STEPS = "trainings reached it", "steps"


@dataclass(frozen=True)
class Cell:
    """One model, link and placement."""

    model: str
    task: str
    """The task of the study (lab/p4reduce_lab/study/grid.toml)."""
    link: Link
    place: str
    """The end of the case's name."""
    at_least: float = 0.0
    """The least ratio of gloo fp16's time to AdaComp's; 0: any."""
    placement: Placement = IN_BRIDGE
    hosts: int = RANKS
    variants: Sequence[str] = tuple(HEADINGS)
    settings: Mapping[str, float] = field(default_factory=dict)
    """Settings of the task that are not the study's."""
    tests: int = 36
    """Tests in a whole training, evenly spread."""
    tuned_on: int = 1
    """Seeds that all settings of `TUNED` train."""

    @property
    def name(self) -> str:
        """The case's name."""
        return f"{NAME}-{self.model.rpartition(' ')[2].lower()}-{self.place}"

    @property
    def title(self) -> str:
        """The model and the network."""
        hosts = "" if self.hosts == RANKS else f"{self.hosts} hosts of {RANKS // self.hosts} ranks, "
        return f"{self.model}, {self.link.name}, {hosts}{self.placement.name}"

    @property
    def adacomp(self) -> str:
        """The variant of AdaComp that docs/compressors.md recommends: with AdamW that is "auto"."""
        return ADACOMP if ADACOMP in self.variants else AUTO

    @property
    def time_threshold(self) -> Threshold:
        """The threshold of the time."""
        return Threshold(f"{self.title}: seconds to the target, gloo fp16 / {self.adacomp}", self.at_least)

    @property
    def steps_threshold(self) -> Threshold:
        """The threshold of the steps."""
        return Threshold(f"{self.title}: steps to the target, gloo / {self.adacomp}", 1 / MOST_STEPS)

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """Both, as far as it has them."""
        return (*((self.time_threshold,) if self.at_least else ()), self.steps_threshold)


def _cell(link: str = MBIT_100.name, placement: str = IN_BRIDGE.name, **fields: Any) -> Cell:
    return Cell(link=LINKS[link], placement=PLACEMENTS[placement], **fields)


CELLS = tuple(_cell(**fields) for fields in GRID[NAME]["cells"])


@dataclass
class Training:
    """One training of one variant."""

    seconds: float = 0.0
    """Seconds of the slowest rank, without those of the tests."""
    steps: int = 0
    reached: bool = False
    tests: list[tuple[float, float]] = field(default_factory=list)
    """Seconds and quality at each test."""
    bytes_down: float = 0.0
    """Bytes down a host's link, the mean of the hosts."""

    @property
    def text(self) -> str:
        """Return it as a few words."""
        until = "reached" if self.reached else "not reached"
        return f"{until} after {self.steps} steps in {self.seconds:.1f} s, quality {self.tests[-1][1]:.5g}"


@dataclass(frozen=True)
class Target:
    """The quality that all variants train to: an accuracy in %, or a loss."""

    is_loss: bool
    of_gloo: Sequence[Training]
    """Whole trainings by gloo in float32, one a seed."""

    @property
    def quality(self) -> float:
        """The median of gloo's final qualities, less 0.2 points of accuracy, or with 0.5 % more loss."""
        final = median(one.tests[-1][1] for one in self.of_gloo)
        return final * 1.005 if self.is_loss else final - 0.2

    def reached(self, quality: float) -> bool:
        """Return whether a quality is at least as good."""
        return quality <= self.quality if self.is_loss else quality >= self.quality

    def __str__(self) -> str:
        return self.show(self.quality)

    def show(self, quality: float) -> str:
        """Write a quality with its unit."""
        return f"{quality:.4f} nats" if self.is_loss else f"{quality:.2f} %"


class Trainings:
    """The trainings of a cell, on a running cluster."""

    def __init__(self, cluster: Cluster, cell: Cell) -> None:
        task, quick = TASKS[cell.task], cluster.run.quick
        self._cluster, self._settings = cluster, cell.settings
        self._arguments: dict[str, Any] = {"task": cell.task, "data": str(_data(cluster.run.folder.parents[1]))}
        self.steps = _QUICK_STEPS if quick else int(cell.settings["steps"])
        self._stretch = self.steps // (_QUICK_TESTS if quick else cell.tests)
        self.is_loss = task.measure == "loss"

    def until(self, variant: str, seed: int, target: Target | None = None) -> Training:
        """Train until the first test at the target; without one, or if it is not reached, all steps."""
        self._begin(variant, seed)
        found = Training()
        before = self._carried()
        while found.steps < self.steps and not found.reached:
            more = min(self._stretch, self.steps - found.steps)
            found.seconds += self._cluster.timed("continue_training", peer=variant, steps=more)
            found.steps += more
            quality = mean(reply["quality"] for reply in self._cluster.ask("test", peer=variant))
            found.tests.append((found.seconds, quality))
            found.reached = target is not None and target.reached(quality)
        found.bytes_down = self._carried() - before
        return found

    def steps_to(self, target: Target) -> list[int]:
        """Return gloo's steps to the target, by seed; of one that ended below it all steps."""
        return [
            next(
                (self._stretch * at for at, (_, quality) in enumerate(one.tests, 1) if target.reached(quality)),
                self.steps,
            )
            for one in target.of_gloo
        ]

    def seconds_a_step(self, variant: str) -> float:
        """Return the seconds of a step, after a warm-up."""
        self._begin(variant, _WARM_UP_SEED)
        warm_up, timed = (2, 4) if self._cluster.run.quick else (_WARM_UP_STEPS, _TIMED_STEPS)
        steps = partial(self._cluster.timed, "continue_training", peer=variant)
        steps(steps=warm_up)
        return min(steps(steps=timed) for _ in range(2)) / timed

    def _begin(self, variant: str, seed: int) -> None:
        settings = {**self._settings, "steps": self.steps}
        self._cluster.ask("begin_training", peer=variant, seed=seed, settings=settings, **self._arguments)

    def _carried(self) -> float:
        return mean(down for _, down in self._cluster.network.carried()) if self._cluster.link.rate_mbit else 0.0


def measure(cell: Cell, run: Run) -> None:
    """Find the target and the time of a step without a limit of the links; then train all variants to the target."""
    found: dict[str, list[Training]] = {}
    tried = {
        variant: [f"{variant} {setting}" for setting in TUNED[variant]] if variant in TUNED else [variant]
        for variant in cell.variants
    }
    seeds = SEEDS[:1] if run.quick else SEEDS
    with running_cluster(run, VETH, RANKS, RANKS // cell.hosts, placement=cell.placement) as cluster:
        trainings = Trainings(cluster, cell)
        target = Target(trainings.is_loss, [trainings.until(GLOO, seed) for seed in seeds])
        of_gloo = trainings.steps_to(target)
        finals = ", ".join(target.show(one.tests[-1][1]) for one in target.of_gloo)
        run.note(
            f"{cell.title}: gloo ends with {finals} after {trainings.steps} steps; the target is {target}, which it "
            f"reaches after {', '.join(map(str, of_gloo))}"
        )
        names = (ALONE, *(name for tries in tried.values() for name in tries))
        step_s = {name: trainings.seconds_a_step(name) for name in names}
        cluster.shape(cell.link)
        for number, seed in enumerate(seeds, 1):
            for variant, tries in tried.items():
                for name in tries:
                    found.setdefault(name, []).append(one := trainings.until(name, seed, target))
                    run.say(f"seed {seed}, {name}: {one.text}")
                if number == min(cell.tuned_on, len(seeds)):
                    tried[variant] = [min(tries, key=lambda name: _slowness(found[name]))]
    chosen = {variant: tries[0] for variant, tries in tried.items()}
    for variant, name in chosen.items():
        _add(run, cell, str(target), variant, name, found[name], step_s[ALONE], step_s[name])
    fp16, ours = found[FP16], found[chosen[cell.adacomp]]
    if not all(2 * sum(one.reached for one in each) > len(seeds) for each in (fp16, ours)):
        run.skip(cell.title, f"the ratio of {FP16} to {cell.adacomp}, one of which did not reach the target")
        return
    run.ratio(cell.time_threshold.name, [one.seconds for one in fp16], [one.seconds for one in ours])
    run.ratio(cell.steps_threshold.name, of_gloo, [one.steps for one in ours])


def _slowness(found: Sequence[Training]) -> tuple[int, float]:
    """Return how many trainings did not reach the target, and the seconds of all."""
    return sum(not one.reached for one in found), sum(one.seconds for one in found)


def _add(
    run: Run, cell: Cell, target: str, variant: str, name: str, found: list[Training], alone_s: float, step_s: float
) -> None:
    """Add a variant's series: `alone_s` and `step_s` are a step's seconds without exchange, and without a limit."""
    steps, seconds = median(one.steps for one in found), [one.seconds for one in found]
    counted = {
        REACHED: float(sum(one.reached for one in found)),
        STEPS: float(steps),
        "s computing": steps * alone_s,
        "s hook and protocol": steps * (step_s - alone_s),
        "s more on these links": median(seconds) - steps * step_s,
        "kB down a link and step": median(one.bytes_down / one.steps for one in found) / 1000,
    }
    run.add(Series(f"{cell.title}, to {target}", name, str(cell.link), "s", seconds, {"variant": variant}, counted))
    run.findings.curves[variant] = [one.tests for one in found]


def prepare(cell: Cell, out: Path) -> None:
    """Download the cell's data into the folder `out`, where they are not there yet. Raises ProcessError."""
    from p4reduce_lab import datasets

    (datasets.shakespeare if cell.model == "transformer" else datasets.mnist)(_data(out))


def _data(out: Path) -> Path:
    return out.resolve() / "data"


def write(out: Path, findings: Mapping[str, Findings]) -> list[Path]:
    """Write the tables as Markdown, and the picture of the first cell, of the cells that ran; return the files."""
    cells = [cell for cell in CELLS if cell.name in findings and findings[cell.name].series]
    if not cells:
        return []
    (path := out / f"{NAME}.md").write_text(tables(cells, findings), encoding="utf-8")
    return [path, *(draw(out / f"{NAME}.png", findings[cell.name]) for cell in cells if cell == CELLS[0])]


def tables(cells: Sequence[Cell], findings: Mapping[str, Findings]) -> str:
    """Return a table of all cells, a row each, and one of each cell, a row a variant."""
    overview, texts = [], []
    for cell in cells:
        found = findings[cell.name]
        by_variant = {str(series.at["variant"]): series for series in found.series}
        fp16_s = median(by_variant[FP16].values)
        ratios = {
            variant: show(fp16_s / median(series.values)) if _reached(series) else ""
            for variant, series in by_variant.items()
        }
        overview.append(
            [cell.title, *(_seconds(by_variant.get(variant)) for variant in HEADINGS), ratios[cell.adacomp]]
        )
        rows = [
            [series.peer, _seconds(series), *(show(series.counted[name]) for name in list(series.counted)[1:]), ratio]
            for series, ratio in zip(by_variant.values(), ratios.values(), strict=True)
        ]
        headings = ["", "s to the target", *list(found.series[0].counted)[1:], "gloo fp16 / this"]
        texts += [*found.notes, Table(headings, rows).markdown()]
    headings = ["seconds to the target", *(heading for heading, _ in HEADINGS.values()), "gloo fp16 / AdaComp"]
    return "\n\n".join([Table(headings, overview).markdown(), *texts]) + "\n"


def _seconds(series: Series | None) -> str:
    if series is None:
        return ""
    low, middle, high = (show(value) for value in (min(series.values), median(series.values), max(series.values)))
    if not _reached(series):
        return f"not in {middle}"
    reached, seeds = int(series.counted[REACHED]), len(series.values)
    return f"{middle} ({low} to {high})" + (f", {reached} of {seeds}" if reached < seeds else "")


def _reached(series: Series) -> bool:
    """Return whether most of its trainings reached the target."""
    return 2 * series.counted[REACHED] > len(series.values)


def draw(path: Path, found: Findings) -> Path:
    """Draw the accuracy over the seconds, a line a seed; return the path. Raises ImportError without matplotlib."""
    best = max(quality for of_seeds in found.curves.values() for tests in of_seeds for _, quality in tests)
    with picture(path, 1, width=9.0, title=found.series[0].what) as (axes,):
        for series in found.series:
            variant = str(series.at["variant"])
            for number, tests in enumerate(found.curves[variant]):
                label = "_" * bool(number) + series.peer  # one entry of the legend for all seeds
                axes.plot(*zip(*tests, strict=True), color=HEADINGS[variant][1], label=label, linewidth=1.2)
        axes.set(xscale="log", xlabel="seconds", ylabel="test accuracy, %", ylim=(best - 4, best + 0.3))
        axes.legend(frameon=False, fontsize=8)
    return path


CASES = tuple(
    Case(
        cell.name,
        f"trainings to a quality, by gloo, PowerSGD and p4reduce: {cell.title}",
        partial(measure, cell),
        needs=(NETWORKS, TRAINING_PACKAGES),
        thresholds=cell.thresholds,
        limit_s=3600.0,
        prepare=partial(prepare, cell),
    )
    for cell in CELLS
)

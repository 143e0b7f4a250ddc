"""`p4reduce switch trace --html`: the page shows what switches recorded, in a browser too, where it is accessible.

The recordings are of the real engine and the compiled program, over links that lose frames.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click
import click.testing
import msgspec
import numpy as np
import pytest

from p4reduce.codecs import Floats
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.testing.world import NetworkConditions, World
from p4reduce_contracts.cli import main
from p4reduce_contracts.jobs.answers import JobInfo
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.lease import Level
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.frames import unpack
from p4reduce_contracts.wire.numbers import BASE_BYTES, KEY_NONE
from p4reduce_controller.cli import trace_steps
from p4reduce_controller.cli.trace_page import Recording, page, recording_of
from p4reduce_lab.sum_picture import picture
from p4reduce_switch.program import PacketTrace
from rigs.fake_switch_client import Running
from rigs.limits import LIMIT_S
from rigs.pipeline import EPOCH, JOB, SLOT_COUNT, PipelineRig, VersionState, payload_of, rank_port
from rigs.scenarios import build
from rigs.secret import rank_secret
from rigs.tree import TREES, Shape, TreeRig

ROOT = Path(__file__).resolve().parents[3]
NETWORKS: dict[str, Shape] = {"one switch": [0, 1, 2, 3], "tree": TREES["2x2"]}
RANKS, WORDS, BLOCKS, SEED = 4, 8, 40, 5


class Recorded:
    """A barrier and a sum of sparse float32 tensors over links that lose frames, recorded."""

    def __init__(self, shape: Shape, seed: int) -> None:
        rig = TreeRig("small", shape)
        levels = {level.switch: level for rank in range(RANKS) for level in rig.levels(rank)}
        self.names = ["root", *(f"switch{number}" for number in range(1, len(levels)))]
        tree = tuple(Level(name, levels[name].children, levels[name].parent or None) for name in self.names)
        job = JobInfo("train", JOB, RANKS, 0, SLOT_COUNT, "ACTIVE", EPOCH, (), None, tree=tree)
        recording = Recording(job, dict.fromkeys(self.names, ""), None, None)
        drawn = np.random.default_rng(seed)
        self.tensors = drawn.integers(-8, 9, (RANKS, BLOCKS, WORDS)).astype(np.float32) / 4
        self.tensors[drawn.random((RANKS, BLOCKS)) < 0.7] = 0
        scenario = build(0, RANKS, rig.geometry, SLOT_COUNT, epoch=EPOCH, job=JOB, levels=rig.levels, collectives=0)
        for member, tensor in zip(scenario.members, self.tensors, strict=True):
            flat = tensor.reshape(-1)
            call = Call(1, Kind.ALL_REDUCE, CodecId.FLOAT32, 0, flat.size)
            member.calls = [(Blocks(), Call(0, Kind.BARRIER)), (Floats(flat).bind(RANKS, WORDS, False), call)]
        world = World(rig, scenario.members, NetworkConditions(0.03, delay_s=0.001, jitter=0.1), seed)
        self.held: dict[tuple[int, int], VersionState] = {}
        """What the registers of the frame's slot and round held after it, by switch and time."""

        def process(number: int, port: int, frame: bytes) -> list[tuple[int, bytes]]:
            traces: list[PacketTrace] = []
            switch = rig.switches[number]
            out: list[tuple[int, bytes]] = switch.program.process(port, frame, traces.append)
            traces[0].at_s = world.now + 1e-6 * len(self.held)  # in order where virtual time stands still
            sent = unpack(rig.geometry, payload_of(frame))
            self.held[number, round(1e6 * traces[0].at_s)] = switch.version_state(sent.slot, sent.round & 1)
            recording.take(self.names[number], msgspec.json.decode(msgspec.json.encode(traces[0])))
            return out

        for number, switch in rig.switches.items():
            switch.program.trace_with(switch.program.compiled.traced())
            switch.process = partial(process, number)  # type: ignore[method-assign]
        results = world.run()
        assert all((mine[1][0] == self.tensors.sum(axis=0).reshape(-1)).all() for mine in results)
        self.begin_us = recording.steps[0].at_us
        self.page = page(recording.document())
        self.document = recording_of(self.page)

    @property
    def steps(self) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = self.document["steps"]
        return steps


@pytest.fixture(scope="module", params=NETWORKS)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(NETWORKS[request.param], SEED)


def words(block: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in re.findall(".{8}", block["words"]))


def numbers(block: dict[str, Any]) -> list[float]:
    return [(word - (word >> 31 << 32)) / 2 ** block["shift"] for word in words(block)]


@pytest.mark.fault("a RESULT is lost: the page shows the copy that is lost, the repetition, and that it is added once")
def test_each_step_has_what_the_registers_held(recorded: Recorded) -> None:
    assert recorded.document["call"] == {"kind": "all-reduce", "codec": "float32", "elements": BLOCKS * WORDS}
    for step in recorded.steps:
        held, state = recorded.held[step["switch"], step["at_us"] + recorded.begin_us], step["state"]
        if step["verdict"] == trace_steps.PASSED:
            assert state is None
            continue
        assert (step["round"], state["seen"]) == (held.round, held.seen)
        assert state["keys"] == [None if key == KEY_NONE else key >> 8 for key in held.keys]
        sums = {column: sums for column, sums in enumerate(held.sums) if held.held >> column & 1}
        assert {int(column): words(block) for column, block in state["sums"].items()} == sums
    lost = [(step, answer) for step in recorded.steps for answer in step["answers"] if answer["lost"]]
    assert lost and all("is lost or late" in step["says"] for step, _ in lost)
    for step, answer in lost:
        same = [s for s in recorded.steps if all(s[key] == step[key] for key in ("switch", "slot", "round"))]
        sent = [s["verdict"] for s in same if s["child"] == answer["to"]]
        assert len(sent) > 1 and set(sent[1:]) == {trace_steps.DUPLICATE}


def test_the_blocks_of_the_whole_collective_are_the_ranks_and_their_sums(recorded: Recorded) -> None:
    sent: dict[tuple[int, int], list[float]] = {}
    sums: dict[int, list[float]] = {}
    for step in recorded.steps:
        level = recorded.document["switches"][step["switch"]]
        ranks = [] if step["child"] == trace_steps.PARENT else level["children"][step["child"]]
        blocks = [block for block in step["blocks"].values() if block["block"] is not None]
        if len(ranks) == 1:
            sent |= {(ranks[0], block["block"]): numbers(block) for block in blocks}
        if level["parent"] is None and step["state"]["complete"]:
            carried = [block for block in step["state"]["sums"].values() if block["block"] is not None]
            sums |= {block["block"]: numbers(block) for block in carried}
    filled = {(int(rank), int(block)) for rank, block in zip(*recorded.tensors.any(axis=2).nonzero(), strict=True)}
    assert sent.keys() == filled, "all of them, and no block of zeros"
    assert all(numbers == recorded.tensors[place].tolist() for place, numbers in sent.items())
    total = recorded.tensors.sum(axis=0)
    assert sums == {block: total[block].tolist() for block in {block for _, block in filled}}
    assert not any(f"{rank_secret(rank):016x}" in recorded.page for rank in range(RANKS)), "secrets stay secret"


def test_slots_side_by_side_have_the_job_s_numbers_a_drop_has_its_reason_and_a_long_collective_is_cut() -> None:
    tree = tuple(Level(name, ((0,), (1,))) for name in ("b", "a"))
    job = JobInfo("train", JOB, 2, 0, SLOT_COUNT, "ACTIVE", EPOCH, (), None, tree=tree)
    recording, rig = Recording(job, {"a": "", "b": ""}, None, 3), PipelineRig("small", 2)
    rig.program.trace_with(rig.program.compiled.traced())

    def send(rank: int, slot: int, number: int, name: str = "b", flipped: int = 0) -> bool:
        frame = bytearray(rig.frame(rank, rig.contribution(slot, number)))
        frame[trace_steps.FRAME + BASE_BYTES + 12] ^= flipped  # the header checksum
        taken: list[PacketTrace] = []
        rig.program.process(rank_port(rank), bytes(frame), taken.append)
        return recording.take(name, msgspec.to_builtins(taken[0]))

    assert not send(0, 0, 4) and not send(1, 0, 4), "a collective of one round, before"
    with pytest.raises(click.ClickException, match="no collective of train began"):
        recording.document()
    assert [send(0, 0, 5), send(1, 0, 5, flipped=1), send(0, 1, 4, "a")] == [False, False, True]
    assert [(step.switch, step.slot, step.verdict) for step in recording.steps] == [
        (0, 0, "FIRST"),
        (0, 0, "HEADER_CHECKSUM"),
        (1, SLOT_COUNT + 1, "FIRST"),
    ]
    document = recording.document()
    assert document["cut"]
    assert document["steps"][1]["says"] == "Rank 1 sends a frame that b drops: HEADER_CHECKSUM."


def in_browser(text: str, script: str, *flags: str) -> Any:
    """Return what a promise of a script in the page gives, as JSON."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    out = "const out = document.createElement('pre'); out.id = 'out'; document.body.append(out);"
    run = f"(async () => {{ {script} }})().then((found) => {{ {out} out.textContent = JSON.stringify(found); }});"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(text.replace("</body>", f"<script>{run}</script></body>"), encoding="utf-8")
        command = [
            chromium,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            f"--user-data-dir={folder}/profile",
        ]
        command += ["--virtual-time-budget=60000", "--window-size=1280,1000", *flags, path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    found = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    return json.loads(html.unescape(found[1]))


STEPPED = """
const texts = (of, selector) => [...of.querySelectorAll(selector)].map((each) => each.textContent);
const found = [];
for (const step of steps) {
  document.getElementById("forth").click();
  const versions = {};
  for (const version of document.querySelectorAll(".version")) {
    const cells = [...version.querySelectorAll(".cell")].map((cell) => texts(cell, ".block, .numbers, .key"));
    versions[version.id] = [...texts(version, ".round"), texts(version, ".seen i.on"), cells];
  }
  found.push([document.getElementById("says").textContent, document.querySelectorAll(".frame.gone").length, versions]);
}
return found;
"""
"""Steps through the page: what it says, the frames that are shown as lost, and the versions of slots."""


@pytest.mark.processes
def test_a_browser_shows_every_step_as_it_was_recorded() -> None:
    recorded = Recorded(NETWORKS["one switch"], SEED)
    shown_steps = in_browser(recorded.page, STEPPED, "--force-prefers-reduced-motion")
    assert len(shown_steps) == len(recorded.steps)
    expected: dict[str, Any] = {}
    for step, found in zip(recorded.steps, shown_steps, strict=True):
        state, version = step["state"], f"version-{step['switch']}-{step['slot']}-{step['round'] & 1}"
        cells = []
        for column, key in enumerate(state["keys"]):
            block = state["sums"].get(str(column))
            asked = step["asked"][column] if step["asked"] else None
            title = "–" if asked is None else f"{'Σ ' if block else ''}block {asked}"
            values = (
                "".join(f"{value:g}".replace("-", "−") for value in numbers(block))
                if block and asked is not None
                else ""
            )
            cells.append(
                ["the call" if block and asked is None else title, values, f"next {'–' if key is None else key}"]
            )
        number = step["round"] - recorded.document["bases"][str(step["slot"])]
        expected[version] = [
            f"round {number}",
            [str(rank) for rank in range(RANKS) if state["seen"] >> rank & 1],
            cells,
        ]
        says, lost, versions = found
        assert (says, lost) == (step["says"], sum(answer["lost"] for answer in step["answers"]))
        assert {name: versions[name] for name in expected} == expected
    assert any(lost for _, lost, _ in shown_steps)


@pytest.mark.processes
@pytest.mark.parametrize(
    "flags", [[], ["--force-dark-mode"], ["--window-size=420,900"]], ids=["light", "dark", "narrow"]
)
def test_axe_finds_no_violation(flags: list[str]) -> None:
    npm = shutil.which("npm")
    folder = (
        subprocess.run([npm, "root", "-g"], capture_output=True, text=True, check=True).stdout.strip() if npm else ""
    )
    axe = Path(folder) / "axe-core" / "axe.min.js"
    if not npm or not axe.is_file():
        pytest.skip("axe-core is not installed: npm install -g axe-core")
    text = (ROOT / "docs/sum.html").read_text(encoding="utf-8")
    source = axe.read_text(encoding="utf-8").replace("</script", "<\\/script")
    script = """
        go(steps.findIndex((step) => step.answers.some((answer) => answer.lost)) + 1);
        document.getElementById("all-terms").open = true;
        const { violations } = await axe.run();
        return violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html.slice(0, 200))]);
    """
    assert in_browser(text.replace("</body>", f"<script>{source}</script></body>"), script, *flags) == []


@pytest.mark.processes
def test_keys_play_step_and_explain() -> None:
    script = """
        const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key }));
        const now = () => [at, playing];
        const found = [now()];
        press("End"); found.push(now());
        press("ArrowLeft"); found.push(now());
        press("Home"); press(" "); found.push(playing);
        press(" "); found.push(playing);
        document.querySelector("#terms [data-term=slot]").focus();
        const explained = document.getElementById("explained");
        return [...found, explained.textContent, explained.querySelector("a").hash];
    """
    text = (ROOT / "docs/sum.html").read_text(encoding="utf-8")
    count = len(recording_of(text)["steps"])
    meaning = "the switch's registers for the blocks of one frame, in two versions: for even and for odd rounds"
    explained = f"slot: {meaning} (in the glossary)"
    found = in_browser(text, script, "--force-prefers-reduced-motion")
    assert found == [[0, False], [count, False], [count - 1, False], True, False, explained, "#g-slot"]


def test_the_docs_have_the_page_and_the_picture_of_one_recording_as_they_are_made() -> None:
    text, drawn = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("sum.html", "sum.svg"))
    assert text == page(recording_of(text)) and len(text.encode()) < 500_000
    assert drawn == picture(recording_of(text)) and len(drawn.encode()) < 150_000
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text + drawn), "they load nothing"
    assert any(answer["lost"] for step in recording_of(text)["steps"] for answer in step["answers"])


def test_the_page_explains_in_the_words_of_the_glossary() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").replace("`", "").replace("\n  ", " ")
    lines = dict(re.findall(r"^- \*\*(.+?)\*\*: (.*)$", glossary, re.MULTILINE))
    entries = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", (ROOT / "docs/sum.html").read_text(encoding="utf-8"))
    assert len(entries) > 10 and dict(entries) == {term: lines.get(term) for term, _ in entries}


def test_a_page_is_of_a_job_that_is_active(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P4REDUCE_CONTROLLER", running.address)
    with JobClient(running.address) as client:
        client.create_job("train", 2)
    for words, said in ((["--job", "train"], "train is still forming"), ([], "name that by --job")):
        done = click.testing.CliRunner().invoke(main, ["switch", "trace", "--html", str(tmp_path / "sum.html"), *words])
        assert done.exit_code in (1, 2) and said in done.output

"""A run over programs: what is made once, what is made again, and the report. No p4testgen, no BMv2."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from conformance.case import PROGRAMS
from fidelity import results, run, tools
from fidelity.generated import GeneratedTest
from fidelity.playing import BMV2, Built, Outcome, Verdict
from fidelity.results import Record
from fidelity.tools import Done, Source

SOURCE = Source("p4c", "drop_by_copy", PROGRAMS / "drop_by_copy.p4")
TEST = 'input_packet {{ packet: "{}" port: 1 }}\n'


class Tools:
    """p4c, p4testgen and the switches, as a run calls them; remembers what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, Outcome] | None = None) -> None:
        self.generated: list[int] = []
        self.played: list[str] = []
        self.tests_played: Counter[str] = Counter()
        self._outcomes = outcomes or {}
        monkeypatch.setattr(tools, "compile_program", self.compile)
        monkeypatch.setattr(run, "Player", self.player)
        monkeypatch.setattr(run, "SWITCHES", ("one", "other"))

    def compile(self, source: Source, target: Path, p4info: Path) -> Done:
        for suffix, path in ((".json", target), (".p4info.txtpb", p4info)):
            path.write_bytes(source.path.with_suffix(suffix).read_bytes())
        return Done("")

    def generate(self, source: Source, folder: Path, tests: int, seed: int, limit_s: float) -> Done:
        self.generated.append(seed)
        folder.mkdir(parents=True)
        for number in range(tests + 1):
            (folder / f"{source.name}_{number}.txtpb").write_text(TEST.format(number))
        (folder / "broken.txtpb").write_text("entities {")
        return Done("")

    def player(self, switch: str) -> FakePlayer:
        """A switch that is started."""
        self.played.append(switch)
        return FakePlayer(switch, self._outcomes.get(switch, Outcome(Verdict.PASS)), self.tests_played)


class FakePlayer:
    def __init__(self, switch: str, outcome: Outcome, count: Counter[str]) -> None:
        self._switch, self._outcome, self._count = switch, outcome, count

    def close(self) -> None: ...

    def play(self, built: Built, test: GeneratedTest) -> Outcome:
        assert built.json and test.port == 1
        self._count[self._switch] += 1
        return self._outcome


def test_a_second_run_takes_the_results_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Tools(monkeypatch)
    first = run.Run(tmp_path, 2, 3, 1.0, made.generate).record(SOURCE)
    assert made.generated == [1, 2] and made.played == [BMV2, "one", "other"]
    assert first.tests == 4 and first.unreadable == 2, "of three texts a seed one is broken"
    again = run.Run(tmp_path, 2, 3, 1.0, made.generate).record(SOURCE)
    assert made.generated == [1, 2] and made.played == [BMV2, "one", "other"]
    assert again == first


def test_a_program_that_does_not_compile_or_has_no_tests_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Tools(monkeypatch)
    none = run.Run(tmp_path / "a", 1, 2, 1.0, lambda *_: Done("error: Unsupported extern 'x'")).record(SOURCE)
    assert (none.tests, none.problem) == (0, "p4testgen: error: Unsupported extern …") and not made.played[3:]
    monkeypatch.setattr(tools, "compile_program", lambda *_: Done("a.p4(3): error: no"))
    bad = run.Run(tmp_path / "b", 1, 2, 1.0, made.generate).record(SOURCE)
    assert (bad.tests, bad.problem) == (0, "p4c: error: no") and made.generated == []


SENT = Outcome(Verdict.PASS, ((1, b"a"),))
OTHER = Outcome(Verdict.FAIL, ((0, b"a"),))
REFUSED = Outcome(Verdict.REFUSED, reason="action profile: not supported")


def test_the_report_counts_where_bmv2_is_ahead_and_where_both_differ() -> None:
    record = Record("some", "p4c")
    record.outcomes = {
        BMV2: {"1": SENT, "2": OTHER, "3": SENT, "4": Outcome(Verdict.ERROR, reason="BMv2 ended")},
        "one": {"1": OTHER, "2": SENT, "3": REFUSED, "4": OTHER},
        "other": {"1": SENT, "2": OTHER, "3": Outcome(Verdict.ERROR, reason="not a BMv2 JSON"), "4": SENT},
    }
    assert record.counts(BMV2) == {"pass": 2, "fail": 1, "error": 1}
    assert record.counts("one") == {"pass": 1, "fail": 2, "refused": 1, "behind": 1, "differ": 2, "lacking": 1}
    assert record.counts("other") == {"pass": 2, "fail": 1, "error": 1, "behind": 1}
    assert record.behind("other") == ["3: not a BMv2 JSON; BMv2: 1:61"]
    about = {"seeds": "1"}
    page = results.as_markdown([record, Record("none", "p4c", "p4c: error")], about)
    assert "2 programs, 1 of them with tests, 4 tests." in page
    assert "| bmv2 | 2 | 1 | 0 | 1 |" in page
    assert "| one | 1 | 2 | 1 | 0 |" in page
    assert "| some | other | 4 | 1 | 0 | 0 |" in page
    assert "| some | one | 1 | action profile: not supported | pass 1 |" in page
    written = json.loads(results.as_json([record], about))
    assert written["programs"]["p4c/some"]["one"]["differ"] == 2 and written["seeds"] == "1"


@pytest.mark.processes
def test_a_command_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    done = tools.command(["sh", "-c", "sleep 600 & sleep 600"], 0.5, tmp_path)
    assert done.problem == "not ready within 0 s"
    busy = tools.command(["sh", "-c", "while :; do :; done"], 120, tmp_path, 1)
    assert busy.problem == "not ready within 1 s of processor time"
    failed = tools.command(["sh", "-c", "echo x.p4 >&2; echo '/a/b/c.p4(1): error: why' >&2; exit 3"], 60, tmp_path)
    assert failed.problem == "c.p4(1): error: why"
    assert tools.command(["true"], 60, tmp_path).problem == ""

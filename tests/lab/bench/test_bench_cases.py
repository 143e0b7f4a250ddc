"""Cases that measure in this process, with as little work as can be: what they hand in."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4reduce_lab.bench.case import Run
from p4reduce_lab.bench.cases import compression, ring
from p4reduce_lab.processes import Children


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(True, tmp_path, Children(tmp_path), networks=False)


def test_adacomp_and_selection_measure_the_same_compression(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "QUICK_SHAPE", (40, 50))
    compression.measure_adacomp(run)
    assert set(run.findings.ratios) == {threshold.name for threshold in compression.ADACOMP_CASE.thresholds}
    compression.measure_selection(run)
    first, *rest = run.findings.series
    assert [series.peer for series in rest[2:4]] == ["a rank's step, form gather", "a rank's step, form sum"]
    peers = [series.peer for series in rest[4:]]
    assert peers == ["p4reduce", "torch.topk", "torch.sort", "a plain add", "zlib, level 1", "zlib, level 6"]
    assert {series.what for series in rest} == {first.what} and first.what.startswith("2,000 elements")
    assert all(len(series.values) == 3 and min(series.values) > 0 for series in run.findings.series)
    smaller = [float(note.split()[-3]) for note in run.findings.notes if note.startswith("zlib")]
    assert len(smaller) == 2 and all(1 < ratio < 1.5 for ratio in smaller)


def test_the_ring_codec_case_reports_speed_and_size(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "ELEMENTS", 5000)
    ring.codec(run)
    assert [series.peer for series in run.findings.series] == [
        f"ring 2^-{bits}, {what}" for bits in (10, 6) for what in ("encode", "decode")
    ]
    sizes = [series.counted["float32 / this"] for series in run.findings.series]
    assert sizes[0] == sizes[1] > 2 and sizes[2] == sizes[3] > 1.2 * sizes[0]
    assert run.findings.ratios[ring.CODEC.name] > 0

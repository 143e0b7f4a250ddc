"""Plots: one for each axis that series lie along."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4reduce_lab.bench.case import Series

pytest.importorskip("matplotlib.font_manager")  # now: on a new machine it asks a program for the fonts


def series(peer: str, density: float) -> Series:
    return Series("some", peer, "100 Mbit/s", "ms", [1.0, 2.0, 4.0], {"density": density, "pattern": "random"})


def test_a_series_of_points_is_plotted(tmp_path: Path) -> None:
    from p4reduce_lab.bench.report import draw

    points = [series("p4reduce", 0.1), series("p4reduce", 0.01), series("gloo", 1.0)]
    nowhere = Series("some", "gloo", "loopback", "ms", [1.0])
    assert draw(tmp_path, [*points, nowhere]) == [tmp_path / "density.png"]
    assert (tmp_path / "density.png").read_bytes().startswith(b"\x89PNG")


def test_a_single_point_is_not_plotted(tmp_path: Path) -> None:
    from p4reduce_lab.bench.report import draw

    assert draw(tmp_path, [series("p4reduce", 0.1)]) == []

"""Gradient compressors: what a rank sends of a gradient, and what it keeps back for a later step."""

from p4reduce.compressors.adacomp import AdaComp, Compressed

__all__ = ["AdaComp", "Compressed"]

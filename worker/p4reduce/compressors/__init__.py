"""Gradient compressors: what a rank sends of a gradient, and what it keeps back for a later step."""

from p4reduce.compressors.block_sparsifier import BlockSparsifier
from p4reduce.compressors.element_sparsifier import ElementSparsifier
from p4reduce.compressors.interface import Compressor, PerParameter, by_name, register
from p4reduce.compressors.messages import Form, Integers, Stream, Support, Values
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.step import Answer, Compressed, Decompressed, ParameterState, Step

# isort: split
# A method's file may import the names above from here, as a file of a user's own does.
from p4reduce.compressors.methods.adacomp import AdaComp
from p4reduce.compressors.methods.no_compression import NoCompression
from p4reduce.compressors.methods.omnireduce import OmniReduce
from p4reduce.compressors.methods.quantize import Quantize
from p4reduce.compressors.methods.scalecom import ScaleCom

__all__ = [
    "AdaComp",
    "Answer",
    "BlockSparsifier",
    "Compressed",
    "Compressor",
    "Decompressed",
    "ElementSparsifier",
    "Form",
    "Integers",
    "NoCompression",
    "OmniReduce",
    "ParameterState",
    "PerParameter",
    "Policy",
    "Quantize",
    "ScaleCom",
    "Step",
    "Stream",
    "Support",
    "Values",
    "by_name",
    "register",
]

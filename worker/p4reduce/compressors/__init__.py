"""Gradient compressors: what a rank sends of a gradient, and what it keeps back for a later step."""

from p4reduce.compressors.config import from_toml
from p4reduce.compressors.forms import Form
from p4reduce.compressors.forms.gather import Stream
from p4reduce.compressors.forms.shared import Support
from p4reduce.compressors.forms.sum import Integers, Values
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import by_name, register
from p4reduce.compressors.step import Answer, Compressed, Decompressed, ParameterState, Step

# isort: split
# A method's file may import the names above from here, as a file of a user's own does.
from p4reduce.compressors.methods.adacomp import AdaComp
from p4reduce.compressors.methods.block_adacomp import BlockAdaComp
from p4reduce.compressors.methods.block_random_k import BlockRandomK
from p4reduce.compressors.methods.block_threshold import BlockThreshold
from p4reduce.compressors.methods.block_top_k import BlockTopK
from p4reduce.compressors.methods.block_top_k_ratio import BlockTopKRatio
from p4reduce.compressors.methods.no_compression import NoCompression
from p4reduce.compressors.methods.scalecom import ScaleCom
from p4reduce.compressors.methods.shared_adacomp import SharedAdaComp

__all__ = [
    "AdaComp",
    "Answer",
    "BlockAdaComp",
    "BlockRandomK",
    "BlockThreshold",
    "BlockTopK",
    "BlockTopKRatio",
    "Compressed",
    "Compressor",
    "Decompressed",
    "Form",
    "Integers",
    "NoCompression",
    "ParameterState",
    "Policy",
    "ScaleCom",
    "SharedAdaComp",
    "Step",
    "Stream",
    "Support",
    "Values",
    "by_name",
    "from_toml",
    "register",
]

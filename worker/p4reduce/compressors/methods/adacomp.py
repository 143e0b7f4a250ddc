"""AdaComp: residual gradient compression with an adaptive number of elements a bin.

Source: Chen et al., "AdaComp: Adaptive Residual Gradient Compression for Data-Parallel Distributed
Training", AAAI 2018. Beyond the selection rule below the paper's text was not at hand (unverified).

For one parameter, with residue R and this step's gradient dW (all element-wise):

    G = R + dW          H = G + dW
    in each bin of L_T elements    gmax = max |G|
    select j        <=>  |H_j| >= gmax and gmax > 0
    scale            =   mean over the bins of gmax          (one number a parameter)
    sent_j           =   sign(G_j) * scale where selected, else 0
    R                <-  G - sent

How a switch that only adds words sums this depends on the form (forms.py):

gather   As published: each rank's coordinates are sent with its own scale, and every rank adds them up in the order of
         the ranks.
sum      All ranks use one scale, the mean over the ranks of the *previous* step's, and integers -1, 0 and 1.
shared   One rank a step, in turn, selects for all, and the values of all ranks there are summed (ours). A step then
         carries less, and its bytes do not grow with the ranks.

"auto" sends a parameter in the form sum where in the last step the coordinates of all ranks took more bytes than lanes
for all elements would, else in the form gather.

The residue is taken from what was really sent, so nothing is lost when a scale is off. A rank whose gradient is all
zero (a layer that was not used) selects nothing of it and keeps its residue.
"""

from __future__ import annotations

from collections.abc import Sequence

from p4reduce.compressors.element_sparsifier import ElementSparsifier
from p4reduce.compressors.interface import register
from p4reduce.compressors.selection import Selection, select_by_bin
from p4reduce.compressors.step import Step


@register("adacomp")
class AdaComp(ElementSparsifier):
    """AdaComp; a parameter's state is its residue and the mean of the ranks' scales.

    The policy gives L_T (default: 50 for convolutions, 500 for other layers).
    """

    def select(self, steps: Sequence[Step]) -> Selection:
        """Choose where |H| >= gmax > 0, bin by bin."""
        return select_by_bin(steps)

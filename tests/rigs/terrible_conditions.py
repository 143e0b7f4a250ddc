"""What hypothesis draws for jobs over a terrible network."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from p4reduce.testing.world import NetworkConditions

FIRST_ROUNDS: Final = st.sampled_from([0, 2**31 - 2, 2**32 - 3])
"""The first rounds of a job's slots: the first, and just before the numbers change their sign and wrap."""


def network_conditions(drop: float = 0.3, duplicate: float = 0.4) -> st.SearchStrategy[NetworkConditions]:
    """Draw from calm to terrible: `drop` and `duplicate` are the largest shares of frames."""
    return st.builds(
        NetworkConditions,
        drop=st.sampled_from([0.0, 0.05, drop]),
        duplicate=st.sampled_from([0.0, 0.1, duplicate]),
        late=st.sampled_from([0.0, 0.1, 0.3]),
        delay_s=st.sampled_from([0.0, 0.001, 0.02]),
    )

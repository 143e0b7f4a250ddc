"""Every metric of p4reduce, declared once: its name as Prometheus has it, labels and what it means.

A name ends with its unit in the plural, unless it is a yes (1) or no (0), and a counter's with "_total" after that. The
label is `job_name` and not `job`, which Prometheus gives to every sample itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True)
class Metric:
    """A metric. A counter only rises, and begins at 0 again when its program or the object that it counts does."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def counter(self) -> bool:
        """Whether it is a counter; else it is a gauge."""
        return self.name.endswith("_total")


class Sample(NamedTuple):
    """One value of a metric, with the values of its labels in order."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


JOBS: Final = Metric("p4reduce_controller_jobs", "Jobs by state.", ("state",))
SLOTS: Final = Metric("p4reduce_controller_slots", "Slots of the switch.")
FREE_SLOTS: Final = Metric("p4reduce_controller_free_slots", "Slots that no job has.")
JOINS: Final = Metric("p4reduce_controller_joins_total", "Ranks that joined a job.")
GRANTS: Final = Metric("p4reduce_controller_grants_total", "Leases of whole jobs: each is a new epoch.")
RESETS: Final = Metric("p4reduce_controller_resets_total", "Resets of active jobs by cause.", ("cause",))
REFUSED_CALLS: Final = Metric(
    "p4reduce_controller_refused_calls_total",
    "Calls of the job service that were refused, by reason.",
    ("call", "reason"),
)
SWITCH_UP: Final = Metric(
    "p4reduce_controller_switch_up",
    "1 if the switch's counters could be read; else its metrics are missing.",
    ("switch",),
)
LINK_UP: Final = Metric(
    "p4reduce_controller_link_up",
    "1 if HELLOs arrive over the link from the switch to its parent, 0 if it was not seen or is silent.",
    ("switch",),
)


def job_label(name: str, job_id: int, private: bool) -> str:
    """Return the value of the label `job_name`: the name, or of a private job "private:" and its id.

    Metrics are served without a lock, and no job's name has a colon.
    """
    return f"private:{job_id}" if private else name


_OF_JOB = ("job_name",)
JOB_RANKS: Final = Metric("p4reduce_job_ranks", "World size of a job.", _OF_JOB)
JOB_MEMBERS: Final = Metric("p4reduce_job_members", "Ranks that have joined.", _OF_JOB)
JOB_SWITCHES: Final = Metric("p4reduce_job_switches", "Switches that sum for it, 0 without a lease.", _OF_JOB)
JOB_SILENCE: Final = Metric(
    "p4reduce_job_silence_seconds", "How long the controller has not heard its most silent member.", _OF_JOB
)
_AT_SWITCH = ("job_name", "switch")
JOB_ROUNDS: Final = Metric("p4reduce_job_rounds_total", "Rounds that the switch finished.", _AT_SWITCH)
JOB_CONTRIBUTION_FRAMES: Final = Metric(
    "p4reduce_job_contribution_frames_total", "Contributions that were added.", _AT_SWITCH
)
JOB_CONTRIBUTION_BYTES: Final = Metric(
    "p4reduce_job_contribution_bytes_total", "Bytes of the contributions that were added.", _AT_SWITCH
)
JOB_DUPLICATE_FRAMES: Final = Metric(
    "p4reduce_job_duplicate_frames_total", "Contributions that had been added before: repeats.", _AT_SWITCH
)
JOB_DUPLICATE_BYTES: Final = Metric(
    "p4reduce_job_duplicate_bytes_total", "Bytes of the contributions that had been added before.", _AT_SWITCH
)
JOB_PENDING_FRAMES: Final = Metric(
    "p4reduce_job_pending_frames_total",
    "Repeats that were answered with PENDING: the round waits for another rank.",
    _AT_SWITCH,
)
JOB_PARENT_FRAMES: Final = Metric(
    "p4reduce_job_parent_frames_total", "RESULT and PENDING that the switch above sent.", _AT_SWITCH
)
JOB_PARENT_BYTES: Final = Metric("p4reduce_job_parent_bytes_total", "Bytes of what the switch above sent.", _AT_SWITCH)
DROP_FRAMES: Final = Metric("p4reduce_drop_frames_total", "Frames that the program dropped.", ("reason", "switch"))
DROP_BYTES: Final = Metric("p4reduce_drop_bytes_total", "Bytes that the program dropped.", ("reason", "switch"))

_OF_PORTS = ("kind", "port")
IN_FRAMES: Final = Metric(
    "p4reduce_switch_in_frames_total", "Frames in: from workers by udp, by ethernet port, by cpu.", _OF_PORTS
)
IN_BYTES: Final = Metric("p4reduce_switch_in_bytes_total", "Bytes in; of udp the payload.", _OF_PORTS)
OUT_FRAMES: Final = Metric("p4reduce_switch_out_frames_total", "Frames out.", _OF_PORTS)
OUT_BYTES: Final = Metric("p4reduce_switch_out_bytes_total", "Bytes out; of udp the payload.", _OF_PORTS)
LOST_FRAMES: Final = Metric(
    "p4reduce_switch_lost_frames_total", "Frames that could not be sent, by reason.", (*_OF_PORTS, "reason")
)
FAILED_FRAMES: Final = Metric(
    "p4reduce_switch_failed_frames_total", "Frames in which the program met undefined behaviour."
)
NO_PORT_FRAMES: Final = Metric(
    "p4reduce_switch_no_port_frames_total", "Frames that the program sent to a port that is none."
)
NO_PROGRAM_FRAMES: Final = Metric(
    "p4reduce_switch_no_program_frames_total", "Frames that came before there was a program."
)
REFUSED_DATAGRAMS: Final = Metric(
    "p4reduce_switch_refused_datagrams_total",
    "Datagrams from unknown peers: no HELLO, or no port was free.",
    ("reason",),
)
EVICTED_PORTS: Final = Metric(
    "p4reduce_switch_evicted_ports_total", "Ports taken from silent peers in no job, for new ones."
)
PORTS: Final = Metric("p4reduce_switch_ports", "Ports that have a peer or an interface.")
DROPPED_PACKET_INS: Final = Metric(
    "p4reduce_switch_dropped_packet_in_frames_total", "Frames to the controller that none was there to take."
)
DROPPED_DIGESTS: Final = Metric(
    "p4reduce_switch_dropped_digests_total", "Digests dropped because too many were not acknowledged."
)
SLOW_CONTROLLER: Final = Metric(
    "p4reduce_switch_slow_controller_messages_total",
    "Messages dropped because a controller that is connected reads too slowly.",
)
CONTROLLERS: Final = Metric("p4reduce_switch_controllers", "Controllers that are connected.")
PRIMARY: Final = Metric("p4reduce_switch_primary", "1 if one of the controllers is primary.")
REFUSED_ORDERS: Final = Metric(
    "p4reduce_switch_refused_orders_total", "P4Runtime calls and updates refused, by code.", ("reason",)
)

WORKER_COLLECTIVES: Final = Metric("p4reduce_worker_collectives_total", "Collectives that were begun.")
WORKER_REFUSED: Final = Metric(
    "p4reduce_worker_refused_collectives_total", "Collectives in which a rank could not take part."
)
WORKER_ROUNDS: Final = Metric("p4reduce_worker_rounds_total", "Rounds finished, summed over slots.")
WORKER_UP_FRAMES: Final = Metric("p4reduce_worker_up_frames_total", "Frames sent.")
WORKER_UP_BYTES: Final = Metric("p4reduce_worker_up_bytes_total", "Bytes sent, with headers.")
WORKER_DOWN_FRAMES: Final = Metric("p4reduce_worker_down_frames_total", "Frames received.")
WORKER_DOWN_BYTES: Final = Metric("p4reduce_worker_down_bytes_total", "Bytes received, with headers.")
WORKER_UP_BLOCKS: Final = Metric("p4reduce_worker_up_blocks_total", "Blocks sent, without repeats.")
WORKER_DOWN_BLOCKS: Final = Metric("p4reduce_worker_down_blocks_total", "Summed blocks received.")
WORKER_REPEATED_FRAMES: Final = Metric("p4reduce_worker_repeated_frames_total", "Frames sent again.")
WORKER_LOST_ROUNDS: Final = Metric(
    "p4reduce_worker_lost_rounds_total", "Rounds that ended after a repeat, and not after a PENDING."
)
WORKER_PENDING_FRAMES: Final = Metric(
    "p4reduce_worker_pending_frames_total", "Answers that another rank's contribution is missing."
)
WORKER_STALE_FRAMES: Final = Metric("p4reduce_worker_stale_frames_total", "Frames of another round.")
WORKER_FOREIGN_FRAMES: Final = Metric(
    "p4reduce_worker_foreign_frames_total", "Frames of another job, epoch, secret or type."
)
WORKER_CORRUPT_FRAMES: Final = Metric(
    "p4reduce_worker_corrupt_frames_total", "Sums whose check word did not fit, or with a word too large."
)
WORKER_MALFORMED_FRAMES: Final = Metric(
    "p4reduce_worker_malformed_frames_total", "Datagrams that are no frames, or contradict what was agreed."
)
WORKER_DENSE_BYTES: Final = Metric(
    "p4reduce_worker_dense_bytes_total", "Of the tensors, before zeros are left out and numbers are packed."
)
WORKER_ROUND_TRIP: Final = Metric(
    "p4reduce_worker_round_trip_seconds", "Smoothed time to an answer of a frame sent once; 0 before one."
)
WORKER_TIMEOUT: Final = Metric(
    "p4reduce_worker_timeout_seconds", "How long an answer is waited for before a frame is sent again."
)
WORKER_WINDOW: Final = Metric("p4reduce_worker_window_slots", "Slots that the next collective may use.")
WORKER_SHARED_MEMORY: Final = Metric(
    "p4reduce_worker_shared_memory_bytes", "Memory that this rank shares with the ranks of its host."
)


def declared() -> Iterator[Metric]:
    """Yield every metric of this module."""
    return (value for value in globals().values() if isinstance(value, Metric))

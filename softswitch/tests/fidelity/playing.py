"""Play generated tests on switches, through P4Runtime, and return how each ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import grpc
from google.rpc import status_pb2

from conformance.bmv2 import Bmv2Error, Bmv2Target
from conformance.embedded import EmbeddedTarget
from fidelity.generated import GeneratedTest, Outputs
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import parse_p4info
from rigs.p4rt import Raw

DEADLINE_S = 20.0
PIPELINE_S = 300.0
"""The largest of p4c's samples takes the embedded switch half a minute alone on a core."""
BMV2, EMBEDDED = "bmv2", "embedded"


class Verdict(StrEnum):
    """The outcome of a test on a switch."""

    PASS = "pass"
    """The frames that the test expects left, and no others."""
    FAIL = "fail"
    """Something else left, or nothing."""
    REFUSED = "refused"
    """The switch named what it lacks, when it got the program or an entry."""
    ERROR = "error"
    """The program or an entry was called invalid, or the switch ended."""


@dataclass(frozen=True)
class Outcome:
    """The verdict of a test, and the frames that left, or the reason why none could."""

    verdict: Verdict
    outputs: Outputs = ()
    reason: str = ""

    @property
    def played(self) -> bool:
        """Whether the frame went through."""
        return self.verdict in (Verdict.PASS, Verdict.FAIL)


@dataclass(frozen=True)
class Built:
    """A compiled program: the JSON for the switch and its P4Info as text."""

    json: bytes
    p4info: str


class Player:
    """A switch under test: BMV2 or EMBEDDED.

    Each test gets the program anew, which empties tables and registers. On BMv2 clone sessions and multicast groups
    outlive that, so a test's are deleted after it. A switch that ended is started again.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._target: Bmv2Target | EmbeddedTarget | None = None
        self._connection: Raw | None = None

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the switch."""
        connection, self._connection = self._connection, None
        target, self._target = self._target, None
        if connection is not None:
            connection.__exit__()
        if target is not None:
            target.__exit__(None, None, None)

    def play(self, built: Built, test: GeneratedTest) -> Outcome:
        """Give the switch the program, the test's entities and its frame.

        A switch that ends or does not answer is tried once more, for a machine can be too busy for it to start.
        """
        if not test.frame:
            return Outcome(Verdict.REFUSED, reason="an empty frame, which BMv2's dataplane service does not take")
        outcome, ended = self._play(built, test)
        return self._play(built, test)[0] if ended else outcome

    def _play(self, built: Built, test: GeneratedTest) -> tuple[Outcome, bool]:
        """The outcome, and whether the switch has ended."""
        try:
            target, connection = self._started()
            refused = _set_pipeline(connection, built)
            if refused is not None:
                self.close()  # BMv2 takes no further program after one that it does not know
                return refused, False
            inserted, refused = _write(connection, p4r.Update.INSERT, test.entities)
            if refused is not None:
                outcome = refused
            else:
                target.pipeline_set()
                outputs = target.arrive(test.port, test.frame)
                outcome = Outcome(Verdict.PASS if test.passes(outputs) else Verdict.FAIL, outputs)
        except (Bmv2Error, grpc.RpcError) as error:
            self.close()
            return Outcome(Verdict.ERROR, reason=_first_line(error)), True
        self._delete_replication(connection, test.entities[:inserted])
        return outcome, False

    def _delete_replication(self, connection: Raw, entities: Sequence[Any]) -> None:
        """Delete the clone sessions and multicast groups among a test's entities; end a switch that does not."""
        replication = [entity for entity in entities if entity.HasField("packet_replication_engine_entry")]
        try:
            deleted, _ = _write(connection, p4r.Update.DELETE, replication)
        except grpc.RpcError:
            deleted = 0
        if deleted < len(replication):
            self.close()

    def _started(self) -> tuple[Bmv2Target | EmbeddedTarget, Raw]:
        if self._target is None or self._connection is None:
            self._target = Bmv2Target() if self.name == BMV2 else EmbeddedTarget()
            self._target.__enter__()
            self._connection = Raw(self._target.address)
            self._connection.open(wait_for_ready=True)
            self._connection.arbitrate()
        return self._target, self._connection


def _set_pipeline(connection: Raw, built: Built) -> Outcome | None:
    request = p4r.SetForwardingPipelineConfigRequest()
    request.action = request.VERIFY_AND_COMMIT
    request.config.p4info.CopyFrom(parse_p4info(built.p4info))
    request.config.p4_device_config = built.json
    return _called(connection, "SetForwardingPipelineConfig", request)


def _write(connection: Raw, operation: int, entities: Sequence[Any]) -> tuple[int, Outcome | None]:
    """Insert or delete entities up to the first that is refused; return how many were not, and the refusal.

    One entry a request: the reason of a refusal is then the request's own.
    """
    for number, entity in enumerate(entities):
        request = p4r.WriteRequest()
        update = request.updates.add(type=operation)
        update.entity.CopyFrom(entity)
        refused = _called(connection, "Write", request)
        if refused is not None:
            return number, refused
    return len(entities), None


def _called(connection: Raw, name: str, request: Any) -> Outcome | None:
    """The outcome of a request that the switch does not grant; None when it does."""
    try:
        limit_s = DEADLINE_S if name == "Write" else PIPELINE_S
        getattr(connection.rpc, name)(connection.addressed(request), timeout=limit_s)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise
        code, details = _reason(error)
        named = code == grpc.StatusCode.UNIMPLEMENTED.value[0] or "not supported" in details
        verdict = Verdict.REFUSED if named else Verdict.ERROR
        return Outcome(verdict, reason=f"{name}: {details}")
    return None


def _reason(error: Any) -> tuple[int, str]:
    """Code and text of a refusal; of a batch, which has one update, those of the update."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for packed in status_pb2.Status.FromString(value).details:
                detail = p4r.Error()
                if packed.Unpack(detail) and detail.canonical_code:
                    return int(detail.canonical_code), _first_line(detail.message)
    return int(error.code().value[0]), _first_line(error.details())


def _first_line(text: object) -> str:
    lines = str(text).strip().splitlines()
    return lines[0][:300] if lines else ""


def read_built(json: Path, p4info: Path) -> Built:
    """A compiled program from its two files."""
    return Built(json.read_bytes(), p4info.read_text())

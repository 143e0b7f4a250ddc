"""Errors of the P4Runtime client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class P4RuntimeError(Exception):
    """Anything that goes wrong between a controller and a switch."""


class SwitchUnreachableError(P4RuntimeError):
    """The switch gave no answer within the deadline, or the connection broke."""


class SwitchWithoutTlsError(SwitchUnreachableError):
    """The switch serves without TLS, and the controller has TLS."""


class NotPrimaryError(P4RuntimeError):
    """Another controller is primary for the switch."""


class PipelineError(P4RuntimeError):
    """The switch refused the program, or has none yet."""


class SchemaError(P4RuntimeError, ValueError):
    """A name or value does not fit the P4Info; found before anything is sent."""


@dataclass(frozen=True)
class Failure:
    """One refused update of a batch: its place, what it was, the code's name ("ALREADY_EXISTS"), the switch's words."""

    index: int
    operation: str
    entry: object
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.operation} {self.entry}: {self.code}{': ' + self.message if self.message else ''}"


class WriteError(P4RuntimeError):
    """Some updates of a batch were refused.

    `failures` lists them in order; it is empty when the switch refused the request as a whole, then `code`
    and the text say why. Updates that are not listed were applied.
    """

    def __init__(self, message: str, failures: Sequence[Failure] = (), code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.failures = tuple(failures)
        self.code = code

    def only(self, *codes: str) -> bool:
        """Whether every failure has one of these codes (and there is one)."""
        return bool(self.failures) and all(failure.code in codes for failure in self.failures)


class ReadError(P4RuntimeError):
    """A read was refused or answered with something unreadable."""

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code

"""Receiving the stream of a gRPC call, as a client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import grpc

MessageT = TypeVar("MessageT")


class StreamError(grpc.RpcError):
    """The status with which a stream ended."""

    def __init__(self, call: Any) -> None:
        """Take the status of a call that has ended."""
        super().__init__(str(call))
        self._code: grpc.StatusCode = call.code()
        self._details: str = call.details() or ""
        self._trailing_metadata = call.trailing_metadata()

    def code(self) -> grpc.StatusCode:
        """Return the canonical code."""
        return self._code

    def details(self) -> str:
        """Return the server's message."""
        return self._details

    def trailing_metadata(self) -> Any:
        """Return pairs of key and value; None without any."""
        return self._trailing_metadata


def received(call: Iterable[MessageT]) -> Iterator[MessageT]:
    """Yield the messages that a call receives. Raises StreamError for a status other than OK.

    gRPC raises the call itself, and its traceback holds frames that hold the call. Such a cycle may last until the
    interpreter ends. gRPC's thread does not run any more then; if it has been ended while it held the call's lock, the
    call's destructor waits for that lock forever.
    """
    try:
        yield from call
    except grpc.RpcError as error:
        error.__traceback__ = None
        raise StreamError(error) from None

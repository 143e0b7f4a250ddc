"""Checks on each call of the job service before its request is parsed: the certificate, how many calls wait.

A JobServiceError, of these checks or of the call itself, is sent as a gRPC status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_contracts.jobs.errors import (
    NAME_KEY,
    InvalidRequestError,
    JobServiceError,
    RetryLaterError,
    name_of,
    status_code,
)
from p4reduce_controller.service.servicer import Context, JobsServicer
from p4reduce_runtime import waiting_calls
from p4reduce_runtime.waiting_calls import WaitingCalls

MAX_WAITING: Final = 2048
"""Calls whose request has not arrived."""

_JOBS: Final = jobs_pb2.DESCRIPTOR.services_by_name["Jobs"]


def generic_handler(servicer: JobsServicer, waiting: WaitingCalls) -> grpc.GenericRpcHandler:
    """Return a generic handler of grpc.aio that serves each call with the method of that name on `servicer`."""
    return waiting_calls.generic_handler(_JOBS, servicer, partial(_RequestGuard, servicer=servicer, waiting=waiting))


class _RequestGuard:
    """The checks of one call."""

    def __init__(
        self, name: str, parse: Callable[[bytes], Message], servicer: JobsServicer, waiting: WaitingCalls
    ) -> None:
        self._name = name
        self._parse = parse
        self._servicer = servicer
        self._waiting = waiting

    def unary_unary(
        self, method: Callable[[Message, Context], Awaitable[Message]]
    ) -> Callable[[object, Context], Awaitable[Message]]:
        async def call(_: object, context: Context) -> Message:
            request = await self._request(context)
            try:
                return await method(request, context)
            except JobServiceError as error:
                await self._abort(context, error)

        return call

    def unary_stream(
        self, method: Callable[[Message, Context], AsyncIterator[Message]]
    ) -> Callable[[object, Context], AsyncIterator[Message]]:
        async def call(_: object, context: Context) -> AsyncIterator[Message]:
            request = await self._request(context)
            try:
                async for reply in method(request, context):
                    yield reply
            except JobServiceError as error:
                await self._abort(context, error)

        return call

    async def _request(self, context: Context) -> Message:
        try:
            self._servicer.check_peer(context)
            serialized = await self._received(context)
            return self._parse(serialized)
        except DecodeError as error:
            await self._abort(context, InvalidRequestError(f"this is no request of {self._name}: {error}"))
        except JobServiceError as error:
            await self._abort(context, error)

    async def _received(self, context: Context) -> bytes:
        loop, reading = asyncio.get_running_loop(), asyncio.ensure_future(context.read())
        self._waiting.add(context, lambda: loop.call_soon_threadsafe(reading.cancel))
        try:
            serialized = await reading
        except asyncio.CancelledError:
            if reason := self._waiting.remove(context):
                raise RetryLaterError(f"no request of {self._name} arrived: {reason}") from None
            raise
        finally:
            self._waiting.remove(context)
        if serialized is grpc.aio.EOF:
            raise InvalidRequestError(f"{self._name} takes one request, and none was sent")
        return bytes(serialized)

    async def _abort(self, context: Context, error: JobServiceError) -> NoReturn:
        self._servicer.refused(self._name, error, context)
        await context.abort(status_code(error), str(error), ((NAME_KEY, name_of(error)),))
        raise error  # abort has raised already

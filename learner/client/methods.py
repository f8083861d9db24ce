"""The calls of the API as methods: one that waits for the answer, and one to await."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec

from parley.learner.client.async_connection import AsyncConnection
from parley.learner.client.call import Call, Reading
from parley.learner.client.connection import BlockingConnection

_Given = ParamSpec("_Given")


def blocking(
    call: Callable[_Given, Call[Reading]],
) -> Callable[Concatenate[BlockingConnection, _Given], Reading]:
    """A method that sends a call and returns its answer; its words and its arguments are the call's."""

    def method(self: BlockingConnection, /, *args: _Given.args, **options: _Given.kwargs) -> Reading:
        return self.send(call(*args, **options))

    _sign(method, call)
    return method


def awaited(
    call: Callable[_Given, Call[Reading]],
) -> Callable[Concatenate[AsyncConnection, _Given], Awaitable[Reading]]:
    """The same as a coroutine."""

    async def method(self: AsyncConnection, /, *args: _Given.args, **options: _Given.kwargs) -> Reading:
        return await self.send(call(*args, **options))

    _sign(method, call)
    return method


def _sign(method: Any, call: Callable[..., object]) -> None:  # noqa: ANN401 -- a function that is to have a signature
    """Give a method the call's words and signature, behind ``self`` and with its answer, for help and editors."""
    update_wrapper(method, call)
    signature = inspect.signature(call)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    answer = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    parameters = [this, *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=parameters, return_annotation=answer)

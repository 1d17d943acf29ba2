# SPDX-License-Identifier: Apache-2.0
"""Why there is no connection, at each address of a target."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Final

import grpc

from attnbias._errors import DeadlineExceededError, from_rpc_error, is_of_the_name, unreached_error
from attnbias._transport import forks
from attnbias._transport.calls import CHECK_HEALTH
from attnbias._transport.target import addresses_of, is_on_this_machine

if TYPE_CHECKING:
    from attnbias._errors import Error
    from attnbias._transport.calls import Calls
    from attnbias._transport.channel import Endpoint
    from attnbias._transport.retry import Deadline

_SECONDS: Final = 1.0  # for all addresses, which are tried at once
_LEAST_SECONDS: Final = 0.2  # beyond the deadline
_MOST_ADDRESSES: Final = 8
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")  # that gRPC looks for


async def explained(error: Error, calls: Calls, deadline: Deadline) -> Error:
    """The error of a call, with a reason for each address if there was no connection to several.

    gRPC itself tells only what was wrong with the address that it tried last.

    Args:
        error: of the call.
        calls: that made it.
        deadline: of the call.
    """
    if not error.unreached or is_of_the_name(error):
        return error
    try:
        seconds = min(deadline.remaining() or _SECONDS, _SECONDS)
    except DeadlineExceededError:
        seconds = _LEAST_SECONDS
    reasons = await calls.do(partial(_reasons, calls.endpoint, seconds))
    return unreached_error(reasons, calls.endpoint) if reasons else error


def _reasons(endpoint: Endpoint, seconds: float) -> dict[str, str]:
    """Why there is no connection, by the address; none if there are not several addresses."""
    if not is_on_this_machine(endpoint.target) and any(map(os.environ.get, _PROXIES)):
        return {}  # a proxy is asked for the name
    addresses = addresses_of(endpoint.target)[:_MOST_ADDRESSES]
    if len(addresses) == 1:
        return {}
    reasons = {}
    with contextlib.ExitStack() as stack, forks.in_grpc():
        calls = {}
        for address in addresses:
            channel = stack.enter_context(endpoint.open_to(address))
            check = CHECK_HEALTH.of(channel)
            calls[address] = check.future(CHECK_HEALTH.request(), timeout=seconds)
        for address, call in calls.items():
            reasons[address.partition(":")[2]] = _reason(call, endpoint, seconds)
    return reasons


def _reason(call: grpc.Future, endpoint: Endpoint, seconds: float) -> str:
    try:
        call.result()
    except grpc.RpcError as failed:
        if failed.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {seconds:g} s"
        return from_rpc_error(failed, endpoint).unreached or "answers"
    return "answers"

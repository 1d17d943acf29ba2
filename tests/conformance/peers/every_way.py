# SPDX-License-Identifier: Apache-2.0
"""A client that also fetches every answer or error in the other ways; all must be identical.

A comparison with a peer therefore covers a unary call, a stream and the command-line tool.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attnbias
from tests.support import ways
from tests.support.contract import message
from tests.support.server import Stub, refused

# Larger payloads are fetched only by Python, to keep the tests short.
_MAX_BYTES = 4 << 20
# One payload in this many is fetched by the tool, which starts a process for each.
_BY_TOOL = 7


class EveryWay(attnbias.Client):
    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._target = target
        self._plain = Stub(target)

    def close(self) -> None:
        self._plain.channel.close()
        super().close()

    def get(self, encoding: attnbias.Encoding, **options: Any) -> Any:
        request = attnbias.Request(encoding, **options)
        try:
            result = super().get(encoding, **options)
        except attnbias.Error as error:
            self._compare_refusals(request, error)
            raise
        self._compare(request, result)
        return result

    def get_many(self, requests: Iterable[attnbias.Request], **options: Any) -> list[Any]:
        requests = list(requests)
        results = super().get_many(requests, **options)
        for index, (request, result) in enumerate(zip(requests, results, strict=True)):
            self._compare(request, result, by_tool=index % _BY_TOOL == 0)
        return results

    def _compare_refusals(self, request: attnbias.Request, error: attnbias.Error) -> None:
        spec = message("TensorSpec").FromString(request.to_spec().SerializeToString())
        assert refused(lambda: self._plain.tensor(spec)).code() == error.code
        with tempfile.TemporaryDirectory() as folder:
            said = ways.refusal_of_tool(self._target, spec, Path(folder))
        # Each client names fields in its own terms.
        wanted = error.message.rpartition(": ")[2]
        assert said.startswith(f"{error.code.name}: ")
        assert wanted.partition(",")[0].lower() in said.lower()

    def _compare(self, request: attnbias.Request, result: Any, *, by_tool: bool = True) -> None:
        spec = message("TensorSpec").FromString(request.to_spec().SerializeToString())
        header = self._plain.header(spec)
        if header.total_bytes > _MAX_BYTES:
            return
        want = ways.parts_of(result, [part.name for part in header.parts])
        if header.total_bytes <= ways.MAX_UNARY_BYTES:
            assert ways.by_unary_call(self._plain, spec) == want
        assert ways.by_stream(self._plain, spec) == want
        if by_tool:
            with tempfile.TemporaryDirectory() as folder:
                assert ways.by_command_line(self._target, spec, Path(folder)) == want

# SPDX-License-Identifier: Apache-2.0
"""FlexAttention masks and biases that no attached model in attach_test.py covers.

torch.compile runs its graphs eagerly here; attach_test.py and
client/python/tests/test_flex_attention.py cover compiled code.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attach_test import LENGTH, MAX_LENGTH, assert_near, decoded, make, tokens
from attached import assert_close
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
    sliding_window_causal_mask_function,
)
from transformers.models.bloom.modeling_bloom import BloomModel

import attnbias
from attnbias._models.families import flex
from attnbias._models.families.bias import Diagonals, KeyRows, dense

QUERY_HEADS, KEY_HEADS, PAST = 12, 4, 60


@pytest.fixture(autouse=True)
def programs_of_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def uncompiled(graph: Any, *_: Any, **__: Any) -> Any:
        return graph.forward

    torch.compiler.reset()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", uncompiled)
    yield
    torch.compiler.reset()


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The numbers of queries and keys in each FlexAttention call."""
    called: list[tuple[int, int]] = []
    own = flex._compiled

    def attend(query: Tensor, key: Tensor, *arguments: Any, **options: Any) -> Any:
        called.append((query.shape[2], key.shape[2]))
        return own(query, key, *arguments, **options)

    monkeypatch.setattr(flex, "_compiled", attend)
    return called


# The second name applies from transformers 5.24 on.
CACHE_NAMES = [
    name
    for name in ("past_key_values", "cache")
    if name == "past_key_values" or name in inspect.signature(BloomModel.forward).parameters
]


def in_parts(model: Any, cache_name: str) -> Tensor:
    """Returns the outputs of a decoder that already has a past when it receives most of its
    tokens."""
    options: dict[str, Any] = {"use_cache": True}
    name = "input_ids"
    if model.config.is_encoder_decoder:
        options["encoder_outputs"] = model.get_encoder()(tokens(LENGTH))
        name = "decoder_input_ids"
    first = model(**options, **{name: tokens(LENGTH)[:, :PAST]})
    options[cache_name] = getattr(first, cache_name)
    rest: Tensor = model(**options, **{name: tokens(LENGTH)[:, PAST:]}).logits
    return rest


@pytest.mark.parametrize("cache_name", CACHE_NAMES)
@pytest.mark.parametrize("name", ["t5", "umt5", "bloom", "mpt", "falcon"])
def test_chunked_prompt_outputs_match(
    client: attnbias.Client, name: str, cache_name: str, shapes: list[tuple[int, int]]
) -> None:
    model = make(name, "flex")
    with torch.no_grad():
        want = in_parts(model, cache_name)
        with attnbias.attach(model, client, max_length=MAX_LENGTH, attention="flex"):
            assert_near([in_parts(model, cache_name)], [want], "flex")
    assert (LENGTH - PAST, LENGTH) in shapes


@pytest.mark.parametrize("name", ["t5", "bloom", "mpt"])
def test_static_cache_outputs_match(
    client: attnbias.Client, name: str, shapes: list[tuple[int, int]]
) -> None:
    """The number of keys is the maximum, and the number of past tokens is a tensor."""
    model = make(name, "flex")
    before = decoded(model, cache_implementation="static")
    with attnbias.attach(model, client, max_length=MAX_LENGTH, attention="flex"):
        assert torch.equal(decoded(model, cache_implementation="static"), before)
    assert shapes


def test_four_dimensional_mask_uses_sdpa(
    client: attnbias.Client, shapes: list[tuple[int, int]]
) -> None:
    """Attention falls back to SDPA, with the dense bias."""
    model = make("t5-encoder", "flex")
    hidden = torch.ones(2, 1, LENGTH, LENGTH).triu(1).bool()
    mask = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)
    with torch.no_grad():
        want = model(tokens(LENGTH), attention_mask=mask)[0]
        with attnbias.attach(model, client, max_length=MAX_LENGTH, attention="flex"):
            got = model(tokens(LENGTH), attention_mask=mask)[0]
            assert not shapes
            assert not torch.allclose(model(tokens(LENGTH))[0], want, atol=0.01)
    assert_near([got], [want], "flex")


class Groups(torch.nn.Module):
    num_key_value_groups = QUERY_HEADS // KEY_HEADS


def biases(kind: str) -> Any:
    numbers = torch.Generator().manual_seed(2)
    if kind == "diagonals":
        return Diagonals(torch.randn(QUERY_HEADS, 2 * LENGTH - 1, generator=numbers), LENGTH - 1)
    if kind == "rows":
        return KeyRows(torch.randn(2, QUERY_HEADS, LENGTH, generator=numbers))
    return None


MASKS = {
    "all": bidirectional_mask_function,
    "causal": causal_mask_function,
    "window": sliding_window_causal_mask_function(50),
}


@pytest.mark.parametrize("queries", [LENGTH, 8])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("kind", ["diagonals", "rows", "none"])
@pytest.mark.parametrize("shown", MASKS)
def test_grouped_query_attention_matches_sdpa(
    shown: str, kind: str, *, padding: bool, queries: int, shapes: list[tuple[int, int]]
) -> None:
    """Compares 12 query heads and 4 key heads with SDPA: full, causal and sliding window."""
    made = torch.Generator().manual_seed(3)
    query = torch.randn(2, QUERY_HEADS, queries, 8, generator=made)
    key, value = torch.randn(2, 2, KEY_HEADS, LENGTH, 8, generator=made)
    spared = torch.ones(2, LENGTH, dtype=torch.int64)
    spared[0, :20] = 0
    options: dict[str, Any] = {
        "batch_size": 2,
        "q_length": queries,
        "kv_length": LENGTH,
        "q_offset": LENGTH - queries,
        "mask_function": MASKS[shown],
        "attention_mask": spared.bool() if padding else None,
        "device": torch.device("cpu"),
    }
    bias = biases(kind)
    if kind == "diagonals":
        bias = bias._replace(first=queries - 1)
    output, weights = flex.attend(
        Groups(), query, key, value, flex.mask(**options), position_bias=bias
    )
    assert weights is None
    mask = sdpa_mask(**options, allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    added = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    if bias is not None:
        added = added + dense(bias, queries, LENGTH)
    want = scaled_dot_product_attention(query, key, value, attn_mask=added, enable_gqa=True)
    sees = mask.any(-1).expand(2, 1, queries)[:, 0]
    assert_close(output[sees], want.transpose(1, 2)[sees])
    is_plain = kind == "none" and shown == "all" and not padding
    assert bool(shapes) == (queries == LENGTH and not is_plain)

# SPDX-License-Identifier: Apache-2.0
"""Every rope_parameters in transformers' configurations, against the model's own module: the
default parameters, and those for every rope_type with distinct axes.

Each is either served from its own parameters, with the axes, columns and parameters that
docs/encodings.md states, or listed in the page's table of other configurations, whose rows
advice_test.py runs.
"""

import re
from collections.abc import Iterator

import numpy as np
import transformers as hf
from pages import configs_in, paragraph_of, section_of
from ropes import (
    AXES,
    Rope,
    Words,
    assert_gives,
    cos_and_sin,
    default_ropes,
    inv_freq_of,
    is_axial,
    module_of,
    relative_bound,
    with_words,
    words_of,
)

import attnbias
from attnbias._models.register import MODELS, UNSERVED

PAGE = "encodings.md"
# advice_test.py covers these with the sizes of a checkpoint.
BROKEN = set(configs_in(paragraph_of(PAGE, "The default sizes of")))


def fields_of(cell: str) -> Words:
    """Returns the fields that a cell in the axes table states."""
    fields: Words = dict(re.findall(r"`(layout)` ([A-Z]+)", cell))
    if "`mrope_interleaved`" in cell:
        fields["mrope_interleaved"] = True
    section = re.search(r"`mrope_section` \[(.*?)\]", cell)
    if section:
        fields["mrope_section"] = section[1]
    return fields


ARRANGED: dict[str, Words] = {
    name: fields_of(cells[1])
    for _, _, _, cells in section_of(PAGE, "Axes and columns")
    for name in configs_in(cells[0])
}
OTHERS = {
    name
    for row in section_of(PAGE, "Configurations that need other parameters")
    for name in configs_in(row.cells[0])
}
NOT_READ = {
    row.cells[0].split("`")[1]: set(configs_in(row.cells[1]))
    for row in section_of(PAGE, "Parameters that a module ignores")
}


def config_name(rope: Rope) -> str:
    return type(rope.config).__name__


def advised(rope: Rope, pairs: int) -> tuple[Words, int]:
    """Returns the fields to request according to the page's tables, and the number of axes."""
    words = words_of(rope)
    arranged = dict(ARRANGED.get(config_name(rope), {}))
    section = arranged.pop("mrope_section", None)
    if section == "n/2, n/2":
        words["mrope_section"] = [pairs // 2] * 2
    elif section and not words.get("mrope_section"):
        words["mrope_section"] = [int(size) for size in section.split(", ")]
    words |= arranged
    if words.get("mrope_interleaved"):
        _, *others = words["mrope_section"]
        words["mrope_section"] = [pairs - sum(others), *others]
    is_default = words["rope_type"] == "default"
    if is_default and config_name(rope) not in NOT_READ["partial_rotary_factor"]:
        words.pop("partial_rotary_factor", None)
    if rope.layer:
        words.pop("truncate", None)
    own_length = vars(rope.config).get("original_max_position_embeddings")
    if "original_max_position_embeddings" in words and own_length and not rope.layer:
        words["original_max_position_embeddings"] = own_length
    if words["rope_type"] == "dynamic":
        words["max_position_embeddings"] = rope.config.max_position_embeddings
    if words["rope_type"] in ("dynamic", "longrope"):
        words["sequence_length"] = int(np.max(AXES)) + 1
    return words, 2 if is_axial(words) else len(words.get("mrope_section", [1]))


def assert_served(client: attnbias.Client, rope: Rope) -> None:
    module = module_of(rope)
    words, num_axes = advised(rope, len(inv_freq_of(rope, module)))
    axes = AXES[:num_axes]
    want = cos_and_sin(rope, module, axes)
    assert_gives(client, words, axes, want, bound=relative_bound(rope))


# Raised by modules that cannot be called like the others.
FAILURES = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


def problem_with(client: attnbias.Client, rope: Rope) -> str | None:
    try:
        assert_served(client, rope)
    except (attnbias.Error, AssertionError, *FAILURES) as error:
        return repr(error)
    return None


def test_every_default_is_served_or_documented(client: attnbias.Client) -> None:
    ropes, without_default = default_ropes()
    assert len(ropes) >= 250
    problems = {rope.name: problem_with(client, rope) for rope in ropes}
    # The page describes the types in the register, and thus in the oldest supported version.
    newer = {
        hf.CONFIG_MAPPING[name].__name__
        for name in set(hf.CONFIG_MAPPING) - MODELS.keys() - UNSERVED.keys()
    }
    known = OTHERS | BROKEN | newer
    unknown = {name: why for name, why in problems.items() if why and name not in known}
    assert unknown == {}
    assert without_default == {"gemma4_assistant", "nougat"}


def extended(rope: Rope) -> Iterator[Words]:
    """Yields the fields for every rope_type, and for partial_rotary_factor."""
    if is_axial(rope.words):
        yield {"rope_type": "axial", "rope_theta": 77.0}
        return
    named = ("rope_theta", "partial_rotary_factor")
    kept = {name: rope.words[name] for name in named if name in rope.words}
    length = {"original_max_position_embeddings": 1024}
    pairs = np.count_nonzero(inv_freq_of(rope, module_of(rope)))
    yield {"rope_type": "linear", "factor": 2.5, **kept}
    yield {"rope_type": "dynamic", "factor": 4.0, **kept}
    yield {"rope_type": "yarn", "factor": 4.0, "truncate": False, **length, **kept}
    yield {
        "rope_type": "yarn",
        "factor": 8.0,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
        **length,
        **kept,
    }
    yield {
        "rope_type": "longrope",
        "factor": 8.0,
        "short_factor": [1 + m / 8 for m in range(pairs)],
        "long_factor": [2 + m / 4 for m in range(pairs)],
        **length,
        **kept,
    }
    yield {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        **length,
        **kept,
    }
    if "partial_rotary_factor" not in kept:
        yield {"rope_type": "proportional", "factor": 2.0, **kept}
        yield {"rope_type": "default", "partial_rotary_factor": 0.5, **kept}
        yield {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5, **kept}


def with_sections(rope: Rope) -> Rope:
    """Returns the rope with its own sections if there are three axes."""
    if ARRANGED.get(config_name(rope), {}).get("mrope_section", "").count(",") < 2:
        return rope
    pairs = len(inv_freq_of(rope, module_of(rope)))
    sections = [pairs - 2 * (pairs // 4), pairs // 4, pairs // 4]
    return with_words(rope, rope.words | {"mrope_section": sections})


def test_every_rope_type_is_served_or_documented(server: str) -> None:
    problems = {}
    served = set()
    names = set()
    walked = set()
    with attnbias.Client(server) as client:
        for rope in default_ropes()[0]:
            if rope.name in names or config_name(rope) in OTHERS | BROKEN:
                continue
            names.add(rope.name)
            walked.add(config_name(rope))
            for words in extended(rope):
                other = with_words(rope, words)
                if module_of(other) is None:  # the module accepts no such rope_type
                    continue
                other = with_sections(other)
                why = problem_with(client, other)
                if why:
                    problems[f"{rope.name} {other.words}"] = why
                served.add((config_name(rope), words["rope_type"]))
    assert problems == {}
    assert len(served) >= 1000
    walked |= BROKEN | OTHERS
    assert ARRANGED.keys() - walked == set()
    assert NOT_READ["partial_rotary_factor"] - walked == set()

# SPDX-License-Identifier: Apache-2.0
"""Every transformers model type is in the register, and is compared here or rejected with a reason.

Rotary models are compared in from_config_test.py too, with all rope_types; models with a learned
bias, and checkpoints' tables, are compared in checkpoint_test.py.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import transformers as hf
from bits import assert_same_bits, to_array
from bounds import assert_near
from checkpoint_test import CASES, check_config, make_model, of_patches
from from_config_test import NO_DEFAULT, REMOTE, ROTARY, make_config
from ropes import AXES, ROWS, Rope, assert_rows, cos_and_sin, module_of
from transformers.initialization import no_init_weights

import attnbias
from attnbias._models.families import learned
from attnbias._models.register import MODELS, UNSERVED

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
IN_CHECKPOINT_TEST = {config.model_type for config, _ in CASES} | {"swinv2"}
IN_FROM_CONFIG_TEST = {*ROTARY, *REMOTE, NO_DEFAULT, "gptj", "bloom", "mpt", "marian", "pegasus"}
IN_FROM_CONFIG_TEST |= {"whisper", "siglip_vision_model"}
RULES = {name: model.rule for name, model in MODELS.items()}
LEARNED = [
    name
    for name, rule in RULES.items()
    if rule in ("learned", "bert", "roberta", "of_both_sides") and name not in IN_FROM_CONFIG_TEST
]
# Models that add one table to all patches at once.
OF_PATCHES = [
    name
    for name in LEARNED
    if MODELS[name].tables in ("vit", "deit", "ijepa") or name == "tipsv2_vision_model"
]
LEARNED = [name for name in LEARNED if name not in OF_PATCHES]
IMAGES = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "image_size": 16,
    "patch_size": 4,
}
SINUSOIDAL = [
    name for name, rule in RULES.items() if rule == "sinusoidal" and name not in IN_FROM_CONFIG_TEST
]
AXIAL = [name for name, model in MODELS.items() if "default_type" in model.arguments]

OF_LAYERS = [name for name, model in MODELS.items() if "layer_types" in model.arguments]
WHOLES = [name for name, model in MODELS.items() if model.parts]
BY_ITSELF = {"codegen", "roformer", "granitemoehybrid"}


def test_every_model_type_is_known() -> None:
    types = set(hf.CONFIG_MAPPING)
    if hf.__version__.startswith("5.23."):  # the register's version; later ones have more
        assert types - MODELS.keys() - UNSERVED.keys() == set()
        assert (MODELS.keys() | UNSERVED.keys()) - types == set(REMOTE)
    assert MODELS.keys() & UNSERVED.keys() == set()


def test_every_served_type_is_compared() -> None:
    compared = IN_CHECKPOINT_TEST | IN_FROM_CONFIG_TEST | BY_ITSELF
    compared |= {*LEARNED, *OF_PATCHES, *SINUSOIDAL, *AXIAL, *OF_LAYERS, *WHOLES}
    assert MODELS.keys() - compared == set()


@pytest.mark.parametrize("model_type", UNSERVED)
def test_unserved_model_type_reports_documented_reason(model_type: str) -> None:
    why = UNSERVED[model_type]
    with pytest.raises(ValueError, match=f"^model_type: got '{model_type}', .*: {re.escape(why)}$"):
        attnbias.from_config({"model_type": model_type})
    assert why in " ".join(PAGE.read_text().split())


LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers")
LAYERS += ("num_layers", "num_decoder_layers", "num_encoder_layers")
WIDTHS = ("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff")


def small_config(model_type: str) -> Any:
    """Returns the class's default with one layer; sizes that affect positions are kept."""
    config = make_config(model_type)
    sizes = dict.fromkeys(LAYERS, 1) | dict.fromkeys(WIDTHS, 16) | {"vocab_size": 200}
    for name, size in sizes.items():
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, size)
    return config


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves weights uninitialized: positions do not depend on them."""
    for kind in (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Embedding):
        monkeypatch.setattr(kind, "reset_parameters", lambda _: None)
    with no_init_weights(), torch.no_grad():
        yield


def looked_up(model: Any) -> dict[str, list[int]]:
    """Returns the rows that a model reads from its position tables for five tokens or an image."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rows: dict[str, list[int]] = {}
    embedding = torch.nn.functional.embedding

    def recording(ids: torch.Tensor, weight: torch.Tensor, *rest: Any, **named: Any) -> Any:
        name = names.get(id(weight), "")
        if re.search("pos|wpe", name):
            rows.setdefault(name, ids.flatten().tolist())
        return embedding(ids, weight, *rest, **named)

    tokens = torch.tensor([[5, 6, 7, 8, 9]])
    named: dict[str, Any] = {"input_ids": tokens}
    if model.main_input_name == "pixel_values":
        size = model.config.image_size
        named = {"pixel_values": torch.zeros(1, 3, size, size)}
    elif model.config.is_encoder_decoder:
        named["decoder_input_ids"] = tokens
    if hasattr(model, "set_default_language"):  # xmod
        model.set_default_language("en_XX")
    with mock.patch.object(torch.nn.functional, "embedding", recording):
        model(**named)
    return rows


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("model_type", LEARNED)
def test_learned_positions_match_rows_read_by_model(
    client: attnbias.Client, model_type: str
) -> None:
    encodings: dict[str, Any] = attnbias.from_config(make_config(model_type))
    config = small_config(model_type)
    is_siglip = model_type == "siglip_text_model"  # which AutoModel does not know
    model = hf.SiglipTextModel(config) if is_siglip else hf.AutoModel.from_config(config)
    rows = looked_up(model.eval())
    assert len(rows) == len(encodings)
    for taken, encoding in zip(rows.values(), encodings.values(), strict=True):
        assert taken[:5] == [encoding.offset + position for position in range(5)]
    if MODELS[model_type].attach == "learned":  # attach finds tables by name
        found = [f"{path}.{name}" for path, name, _ in learned._tables_of(model)]
        assert found == list(rows)


@pytest.mark.parametrize("model_type", OF_PATCHES)
def test_learned_patch_positions_match_table_rows(client: attnbias.Client, model_type: str) -> None:
    config = make_config(model_type, **IMAGES)
    encoding: Any = attnbias.from_config(config)["positions"]
    model = make_model(config)
    with torch.no_grad():
        (answer,) = of_patches(model).values()
    # Registers follow the class token and have no rows.
    registers = getattr(config, "num_register_tokens", 0)
    want = np.delete(answer.want, range(1, 1 + registers), axis=0)
    table = model.embeddings.position_embeddings[0]
    assert_same_bits(client.get(replace(encoding, table=table), positions=len(want)), want)
    found = [(path, name) for path, name, _ in learned._tables_of(model)]
    assert found == [("embeddings", "position_embeddings")]


FIRST = {"m2m_100": 2, "nllb-moe": 2, "fsmt": 2, "xglm": 2, "speech_to_text": 2}


@pytest.mark.parametrize("model_type", SINUSOIDAL)
def test_sinusoids_match_module(client: attnbias.Client, model_type: str) -> None:
    config = small_config(model_type)
    encodings = attnbias.from_config(make_config(model_type))
    model = hf.AutoModel.from_config(config)
    for place, encoding in encodings.items():
        side = getattr(model, place.removesuffix(".positions"), model)
        module = side.embed_positions
        length = 40
        if model_type == "pegasus_x":
            want = to_array(module(torch.empty(1, length, config.d_model)))[0]
        else:
            table = getattr(module, "weights", None)
            want = to_array(module.weight if table is None else table)[:length]
        first = FIRST.get(model_type, 0)  # the previous row belongs to padding and is zero
        got = client.get(encoding, positions=(first, length))
        assert_near(got, want[first:], np.arange(first, length))


@pytest.mark.parametrize("model_type", AXIAL)
def test_axial_tables_match_module(client: attnbias.Client, model_type: str) -> None:
    config = make_config(model_type)
    encoding = attnbias.from_config(config)["rotary"]
    rope = Rope(model_type, config, None, dict(config.rope_parameters))
    assert_rows(client, encoding, rope, AXES[:2])


@pytest.mark.parametrize("model_type", OF_LAYERS)
@pytest.mark.parametrize("old", [False, True], ids=["default", "old fields"])
def test_layer_tables_match_module(client: attnbias.Client, model_type: str, old: bool) -> None:
    types = MODELS[model_type].arguments["layer_types"]
    words = {name: 12345.0 for name in types.values() if isinstance(name, str)} if old else {}
    config = make_config(model_type, **words)
    encodings = attnbias.from_config({"model_type": model_type, **words})
    assert encodings == attnbias.from_config(config)
    for layer_type in types:
        layer_words = dict(config.rope_parameters[layer_type])
        rope = Rope(model_type, config, layer_type, layer_words)
        encoding = encodings[f"rotary.{layer_type}"]
        assert_rows(client, encoding, rope, [ROWS])


@pytest.mark.parametrize("model_type", WHOLES)
def test_parts_use_defaults_of_their_types(model_type: str) -> None:
    parts = MODELS[model_type].parts
    fields = {f"{name}_config": {"model_type": kind} for name, kind in parts.items()}
    config = make_config(model_type, **fields)
    got = attnbias.from_config({"model_type": model_type, **fields})
    assert got == attnbias.from_config(config)
    for name, kind in parts.items():
        for place, encoding in attnbias.from_config({"model_type": kind}).items():
            assert got[f"{name}.{place}"] == encoding


ATTACHED = [
    name for name, model in MODELS.items() if model.attach == "rotary" and model.rule != "none"
]


class Holder(hf.PreTrainedModel):
    """A model that consists of one module."""

    def __init__(self, module: Any) -> None:
        super().__init__(module.config)
        self.rotary_emb = module


def rotary_model(model_type: str) -> Holder:
    has_rotary = {"position_embedding_type": "rope"} if model_type == "granitemoehybrid" else {}
    config = make_config(model_type, **has_rotary)
    layer_type = next(iter(MODELS[model_type].arguments.get("layer_types", {})), None)
    module = module_of(Rope(model_type, config, layer_type, dict(config.rope_parameters)))
    assert module.config.model_type == model_type
    return Holder(module)


def rows_by(module: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """Returns a module's rows for positions, including ones that differ between its axes."""
    ids = torch.tensor([[0, 1, 5, 63], [40, 8, 9, 17]])
    asked = [ids.t()] if module.rope_type == "axial" else [ids, -ids]
    if hasattr(module, "mrope_section"):
        asked.append(torch.stack([ids, ids.flip(0), 63 - ids]))
    made = []
    for layer_type in getattr(module, "layer_types", [None]):
        options = {} if layer_type is None else {"layer_type": layer_type}
        for positions in asked:
            answer = module(x, positions, **options)
            made += [answer.real, answer.imag] if torch.is_tensor(answer) else answer
    return made


@pytest.mark.parametrize("model_type", ATTACHED)
def test_attach_supports_every_rotary_module(client: attnbias.Client, model_type: str) -> None:
    model = rotary_model(model_type)
    module = model.rotary_emb
    xs = [torch.zeros(1, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]
    want = [rows_by(module, x) for x in xs]
    with attnbias.attach(model, client, max_length=64) as attached:
        assert not any(one.reason for one in attached.report())
        for x, its in zip(xs, want, strict=True):
            for one, other in zip(rows_by(module, x), its, strict=True):
                unit = torch.finfo(other.dtype).eps
                torch.testing.assert_close(one, other, rtol=unit, atol=1e-5)
    assert all(map(torch.equal, rows_by(module, xs[0]), want[0]))
    for name, buffer in module.named_buffers():
        if "original" not in name:
            buffer.mul_(1.001)
    # A model whose configuration from_config rejects keeps its own values.
    refused = [one.encoding.inverse_frequencies for one in attached.report()]
    if not any(refused):
        with pytest.raises(ValueError, match=r"rotary_emb\.forward with .* the largest difference"):
            attnbias.attach(model, client, max_length=64)


def test_every_type_is_attachable_or_has_a_reason() -> None:
    for name, model in MODELS.items():
        assert bool(model.attach) != bool(model.unattached), name
    assert sum(model.attach is not None for model in MODELS.values()) >= 280


@pytest.mark.parametrize("model_type", WHOLES)
def test_composite_models_attach_if_a_part_does(model_type: str) -> None:
    def families(name: str) -> set[str | None]:
        row = MODELS[name]
        return {row.attach}.union(*(families(part) for part in row.parts.values())) - {None}

    parts = set[str | None]().union(*(families(part) for part in MODELS[model_type].parts.values()))
    want = "rotary" if "rotary" in parts else "learned" if parts == {"learned"} else None
    assert MODELS[model_type].attach == want


def test_attach_unwraps_peft_model(client: attnbias.Client) -> None:
    config = hf.LlamaConfig(
        vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    model = hf.LlamaModel(config)
    # Covers only attach's own check, since peft itself is not among these tests' packages.
    wrapped: Any = SimpleNamespace(peft_config={}, get_base_model=lambda: model)
    with attnbias.attach(wrapped, client, max_length=8) as attached:
        assert [each.path for each in attached.report()] == ["rotary_emb.forward"]


def test_granite_hybrid_has_positions_only_with_rope() -> None:
    for kind, places in ((None, set()), ("nope", set()), ("rope", {"rotary"})):
        config = hf.GraniteMoeHybridConfig(position_embedding_type=kind)
        assert attnbias.from_config(config).keys() == places
        with torch.device("meta"):
            model = hf.AutoModel.from_config(config)
        assert (model.rotary_emb is not None) == bool(places)


IGNORED: list[tuple[str, Any]] = [
    *(
        ({"rope_type": kind, "rope_theta": 1e4} | words, more)
        for kind, words in {
            "default": {},
            "linear": {"factor": 2.0},
            "yarn": {"factor": 2.0, "original_max_position_embeddings": 1024},
        }.items()
        for more in (
            {"attn_factor": 1.5},
            {"finetuned": True},
            {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
            {"short_mscale": 1.5, "long_mscale": 2.0},
            {"alpha": 1000.0},
            {"llama_4_scaling_beta": 0.1},
            {"mrope_section": [1, 2, 3]},
            {"short_factor": [2.0] * 64, "long_factor": [3.0] * 64},
            {} if kind != "default" else {"factor": 8.0, "beta_fast": 2.0},
        )
    )
]


@pytest.mark.filterwarnings("ignore:from_config")
@pytest.mark.parametrize(("words", "more"), IGNORED)
def test_ignored_rope_fields_do_not_change_module(words: Any, more: Any) -> None:
    configs = [
        make_config("llama", hidden_size=256, num_attention_heads=2, rope_parameters=dict(rope))
        for rope in (words, words | more)
    ]
    ropes = [Rope("llama", config, None, words) for config in configs]
    tables = [cos_and_sin(rope, module_of(rope), [ROWS]) for rope in ropes]
    for plain, with_more in zip(*tables, strict=True):
        assert_same_bits(plain, with_more)
    assert attnbias.from_config(configs[0]) == attnbias.from_config(configs[1])


@pytest.mark.parametrize("fields", [{"alibi": False}, {"alibi_bias_max": 16}])
def test_ignored_mpt_fields_do_not_change_outputs(fields: Any) -> None:
    sizes = {"d_model": 16, "n_heads": 4, "n_layers": 1, "vocab_size": 8, "max_seq_len": 9}
    outputs = []
    for config in (hf.MptConfig(**sizes), hf.MptConfig(**sizes, attn_config=fields)):
        torch.manual_seed(0)
        model = hf.MptModel(config).eval()
        with torch.no_grad():
            outputs.append(to_array(model(torch.arange(8)[None]).last_hidden_state))
    assert_same_bits(*outputs)


# Files that only one of the two readers accepts, or that they read differently.
FILES = {
    "plain": '{"model_type": "bert", "x": 1}',
    "NaN": '{"model_type": "bert", "x": NaN}',
    "Infinity": '{"model_type": "bert", "x": [0.0, Infinity], "y": -Infinity}',
    "NaN in a string": '{"model_type": "bert", "x": "a \\"NaN\\": NaN"}',
    "NaN as a key": '{"model_type": "bert", NaN: 1}',
    "NaN and more": '{"model_type": "bert", "x": NaNs}',
    "nan": '{"model_type": "bert", "x": nan}',
    "+Infinity": '{"model_type": "bert", "x": +Infinity}',
    "a size that is NaN": '{"model_type": "bert", "max_position_embeddings": NaN}',
    "a size that is null": '{"model_type": "bert", "max_position_embeddings": null}',
    "another field for null": '{"model_type": "t5", "num_attention_heads": null, "num_heads": 4}',
    "a large number": '{"model_type": "bert", "x": [1e400, -1e400, 1.5E+999]}',
    "a large integer": '{"model_type": "bert", "x": 1' + 400 * "0" + "}",
    "an integer beyond Python": '{"model_type": "bert", "x": 1' + 4400 * "0" + "}",
    "leading zeros": '{"model_type": "bert", "x": 01e400}',
    "no fraction": '{"model_type": "bert", "x": 1.e400}',
    "byte order mark": '\ufeff{"model_type": "bert"}',
    "half of a pair": '{"model_type": "bert", "x": "\\ud800"}',
    "a pair": '{"model_type": "bert", "x": "\\ud83d\\ude00"}',
    "control character": '{"model_type": "bert", "x": "\n"}',
    "comment": '{"model_type": "bert"} // no',
    "trailing comma": '{"model_type": "bert",}',
    "two values": '{"model_type": "bert"} {}',
    "one name twice": '{"model_type": "none", "model_type": "bert"}',
    "list": '["model_type"]',
    "empty": "",
    "100 levels": '{"model_type": "bert", "x": ' + 99 * "[" + 99 * "]" + "}",
    "101 levels": '{"model_type": "bert", "x": ' + 100 * "[" + 100 * "]" + "}",
    "102 levels": '{"model_type": "bert", "x": ' + 101 * "[" + 101 * "]" + "}",
    "100000 levels": '{"model_type": "bert", "x": ' + 100000 * "[",
}


@pytest.mark.parametrize("name", FILES)
def test_client_and_server_accept_the_same_configs(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(FILES[name], encoding="utf-8")
    try:
        attnbias.from_config(tmp_path)
        is_read = True
    except ValueError as error:
        is_read = "want a number that" in str(error)
    stderr = check_config(tmp_path).stderr
    # There are no weights, so a valid file is reported as lacking them.
    assert ("got no weights" in stderr) == is_read, stderr
    try:
        json.loads(FILES[name])
        transformers_reads = isinstance(json.loads(FILES[name]), dict)
    except (ValueError, RecursionError):
        transformers_reads = False
    if name not in ("half of a pair", "101 levels", "102 levels", "a size that is NaN"):
        assert is_read == transformers_reads or "null" in name

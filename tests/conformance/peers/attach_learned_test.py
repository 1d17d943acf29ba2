# SPDX-License-Identifier: Apache-2.0
"""Models with learned positions, attached to a server that has their tables, and unattached."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from attached import (
    ENCODER_DECODER,
    assert_close,
    chosen,
    compiled,
    counted_sdpa,
    other_attention,
    state,
)
from safetensors.torch import save_file
from torch import Tensor

import attnbias
from tests.support.server_process import running_server

ROWS, LENGTH, NEW = 120, 40, 64
PAD = 1
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "max_position_embeddings": ROWS,
    "pad_token_id": PAD,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
BERT = SIZES | {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
BART = SIZES | ENCODER_DECODER | {"decoder_start_token_id": 2}
SIGHT = BERT | {"image_size": 24, "patch_size": 8}  # 9 patches
TEXT = BERT | {"projection_dim": 16}
WHISPER = BART | {"num_mel_bins": 8, "max_source_positions": 50, "max_target_positions": ROWS}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", BERT),
    "roberta": ("RobertaForMaskedLM", BERT),
    "gpt2": ("GPT2LMHeadModel", SIZES | {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "opt": ("OPTForCausalLM", BERT | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "bart": ("BartForConditionalGeneration", BART),
    "mbart": ("MBartForConditionalGeneration", BART),
    "plbart": ("PLBartForConditionalGeneration", BART),
    "blenderbot": ("BlenderbotForConditionalGeneration", BART),
    "blenderbot-small": ("BlenderbotSmallForConditionalGeneration", BART),
    "whisper": ("WhisperForConditionalGeneration", WHISPER),
    "clip_text_model": ("CLIPTextModelWithProjection", TEXT),
    "clip_vision_model": ("CLIPVisionModelWithProjection", SIGHT | {"projection_dim": 16}),
    "siglip": ("SiglipModel", {"text_config": TEXT, "vision_config": SIGHT}),
    "vit": ("ViTForImageClassification", SIGHT),
    "deit": ("DeiTForImageClassification", SIGHT),
    "dinov2": ("Dinov2ForImageClassification", SIGHT),
}
# The tables' paths, and the row for position 0.
TABLES = {
    "bert": (["bert.embeddings.position_embeddings"], 0),
    "roberta": (["roberta.embeddings.position_embeddings"], PAD + 1),
    "gpt2": (["transformer.wpe"], 0),
    "opt": (["model.decoder.embed_positions"], 2),
    **{
        name: (["model.encoder.embed_positions", "model.decoder.embed_positions"], 2)
        for name in ("bart", "mbart", "plbart")
    },
    **{
        name: (["model.encoder.embed_positions", "model.decoder.embed_positions"], 0)
        for name in ("blenderbot", "blenderbot-small")
    },
    "whisper": (["model.decoder.embed_positions"], 0),
    "clip_text_model": (["text_model.embeddings.position_embedding"], 0),
    "clip_vision_model": (["vision_model.embeddings.position_embedding"], 0),
    "siglip": (
        ["text_model.embeddings.position_embedding", "vision_model.embeddings.position_embedding"],
        0,
    ),
    **{name: ([f"{name}.embeddings"], 0) for name in ("vit", "deit", "dinov2")},
}
# Models with one parameter for all patches, [1, patches, columns].
OF_PATCHES = ("vit", "deit", "dinov2")
# Models whose other positions also come from the server.
SAME = [name for name in KINDS if name != "whisper"]
SEEING = ("clip_vision_model", "siglip", *OF_PATCHES)
GENERATORS = [name for name in KINDS if name not in ("bert", "roberta", "clip_text_model", *SEEING)]


def new_model(name: str, attention: str = "eager") -> Any:
    """Returns a model with random weights. Positions as large as tokens expose a wrong row."""
    torch.manual_seed(0)
    kind, fields = KINDS[name]
    model = getattr(transformers, kind)
    config = model.config_class(**fields)
    made = model._from_config(config, attn_implementation=attention).eval()
    for parameter in made.parameters():
        if parameter.dim() > 1 and parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    made.requires_grad_(False)
    for table in weights(made, name).values():
        table[-1, :2] = torch.tensor([-0.0, 1e-45])  # these bits must reach the output
    return made


def weights(model: Any, name: str) -> dict[str, Tensor]:
    """Returns the position tables, ``[rows, columns]``."""
    parameter = "position_embeddings" if name in OF_PATCHES else "weight"
    found = {
        f"{path}.{parameter}": getattr(model.get_submodule(path), parameter)
        for path in TABLES[name][0]
    }
    return {path: table[0] if table.dim() == 3 else table for path, table in found.items()}


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields a server that has all models' tables, including one of another type."""
    folder = tmp_path_factory.mktemp("tables")
    for name in KINDS:
        tables = {path: table.data for path, table in weights(new_model(name), name).items()}
        save_file(tables, folder / f"{name}.safetensors")
    half = {path: table.bfloat16() for path, table in weights(new_model("opt"), "opt").items()}
    save_file(half, folder / "half.safetensors")
    with running_server(f"--tables={folder}") as target:
        yield target


@pytest.fixture(scope="module")
def client_of_tables(mounted: str) -> Iterator[attnbias.Client]:
    with attnbias.Client(mounted) as connected:
        yield connected


SIDES = (None, "left", "right")  # where the padding is


def inputs(name: str, side: str | None = None) -> dict[str, Tensor]:
    """Returns a batch of two, the first of them padded on one side."""
    made = torch.Generator().manual_seed(1)
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 100, generator=made)}
    images = {"pixel_values": torch.randn(2, 3, 24, 24, generator=made)}
    if name in SEEING and name != "siglip":
        return images
    ids, mask = torch.randint(3, 61, (2, LENGTH), generator=made), torch.ones(2, LENGTH).long()
    if side is not None:
        mask[0, slice(0, 9) if side == "left" else slice(-9, None)] = 0
    text = {"input_ids": ids.masked_fill(mask == 0, PAD), "attention_mask": mask}
    return images | text if name == "siglip" else text


def outputs(model: Any, name: str, sides: Sequence[str | None] = SIDES) -> list[Tensor]:
    options: dict[str, Any] = {}
    if model.config.is_encoder_decoder:
        options["decoder_input_ids"] = torch.arange(3, 33).repeat(2, 1)
    answers = [model(**inputs(name, side), **options) for side in sides]
    if name == "siglip":
        return [answer.logits_per_image for answer in answers]
    return [getattr(answer, "logits", answer[0]) for answer in answers]


def decoded(model: Any, name: str) -> Tensor:
    options: dict[str, Any] = {"do_sample": False, "num_beams": 1, "bad_words_ids": None}
    options |= {"max_new_tokens": NEW, "min_new_tokens": NEW}
    made: Tensor = model.generate(**inputs(name, "left"), **options)
    return made


def assert_same(got: list[Tensor], want: list[Tensor]) -> None:
    assert len(got) == len(want)
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", SAME)
def test_outputs_are_unchanged(
    client_of_tables: attnbias.Client, name: str, attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attaches with an attention implementation that is not the model's own, then restores it."""
    model, own = new_model(name, other_attention(attention)), new_model(name, attention)
    by_sdpa = counted_sdpa(monkeypatch)
    before, keys = state(model), [*model.state_dict()]
    memory = [table.data_ptr() for table in weights(model, name).values()]
    with attnbias.attach(model, client_of_tables, max_length=ROWS, attention=attention):
        assert [*model.state_dict()] == keys
        tables = weights(model, name)
        kept = [table.detach() for table in tables.values()]  # keeps their memory from being reused
        served = [table.data_ptr() for table in kept]
        assert not {*memory} & {*served}
        for table, its in zip(tables.values(), weights(own, name).values(), strict=True):
            assert torch.equal(table.view(torch.int32), its.view(torch.int32))
        attached = outputs(model, name)
        assert bool(by_sdpa) == (attention == "sdpa")
        assert_same(attached, outputs(own, name))
    assert state(model) == before
    assert not {table.data_ptr() for table in weights(model, name).values()} & {*served}
    model.set_attn_implementation(attention)
    assert_same(outputs(model, name), outputs(own, name))


@pytest.mark.parametrize("name", GENERATORS)
def test_greedy_decoding_is_unchanged(client_of_tables: attnbias.Client, name: str) -> None:
    model = new_model(name)
    want = decoded(model, name)
    assert want.shape[1] >= NEW
    with attnbias.attach(model, client_of_tables, max_length=ROWS):
        assert torch.equal(decoded(model, name), want)


# The others use BART's code.
@pytest.mark.parametrize(
    "name", chosen(["bert", "roberta", "gpt2", "opt", "bart", "siglip", "vit"], "bert", "gpt2")
)
def test_compiled_outputs_match(client_of_tables: attnbias.Client, name: str) -> None:
    model = new_model(name)
    want = outputs(model, name, ["left"])
    with attnbias.attach(model, client_of_tables, max_length=ROWS):
        assert_same(outputs(compiled(model), name, ["left"]), want)


@pytest.mark.parametrize("name", SAME)
def test_report_has_table_digests(client_of_tables: attnbias.Client, name: str) -> None:
    """The report has from_config's encodings, with the digests of the mounted tables."""
    model = new_model(name)
    (offset,) = {encoding.offset for encoding in attnbias.from_config(model.config).values()}
    assert offset == TABLES[name][1]
    digests = {table.name: table.sha256 for table in client_of_tables.list_tables()}
    with attnbias.attach(model, client_of_tables, max_length=ROWS) as attached:
        report = {one.path: one for one in attached.report()}
    tables = weights(model, name)
    assert report.keys() == tables.keys()
    for path, table in tables.items():
        one = report[path]
        digest = f"sha256:{digests[f'{name}:{path}']}"
        assert one.encoding == attnbias.LearnedAbsolute(table=digest, offset=offset)
        assert (one.fetched_bytes, one.spared_bytes, one.left) == (table.nbytes, 0, False)


@pytest.mark.parametrize("name", [name for name in SAME if name not in SEEING])
def test_encoding_matches_rows_read_by_model(client_of_tables: attnbias.Client, name: str) -> None:
    """Position p of the encoding is the row for the p-th token after the first."""
    model = new_model(name)
    path = TABLES[name][0][0]
    read: list[Tensor] = []
    hook = model.get_submodule(path).register_forward_hook(lambda *call: read.append(call[2]))
    outputs(model, name)
    hook.remove()
    with attnbias.attach(model, client_of_tables, max_length=ROWS) as attached:
        encoding: Any = attached.report()[0].encoding
    want = client_of_tables.get(encoding, positions=LENGTH)
    assert torch.equal(read[0].reshape(-1, LENGTH, 32)[-1], torch.tensor(want))


def test_cast_model_needs_table_of_its_type(client_of_tables: attnbias.Client) -> None:
    """The digest depends on the type; a model that is cast while attached uses its own weights."""
    model = new_model("opt").bfloat16()
    own = copy.deepcopy(model)
    with attnbias.attach(model, client_of_tables, max_length=ROWS) as attached:
        assert attached.report()[0].fetched_bytes == 2 * 32 * (ROWS + 2)
        assert_same(outputs(model, "opt"), outputs(own, "opt"))
    model = new_model("opt")
    with attnbias.attach(model, client_of_tables, max_length=ROWS):
        assert_same(outputs(model.bfloat16(), "opt"), outputs(own, "opt"))
    assert_same(outputs(model, "opt"), outputs(own, "opt"))
    half = new_model("opt").half()
    with pytest.raises(ValueError, match=r"^model: got model\.decoder\.embed_positions\.weight"):
        attnbias.attach(half, client_of_tables, max_length=ROWS)


def refusal(client: attnbias.Client, model: Any) -> str:
    with pytest.raises(ValueError, match=r"^model: ") as caught:
        attnbias.attach(model, client, max_length=ROWS)
    return str(caught.value)


def test_modified_table_is_rejected(
    client: attnbias.Client, client_of_tables: attnbias.Client
) -> None:
    model = new_model("opt")
    table = model.model.decoder.embed_positions.weight
    table[5, 7] = torch.nextafter(table[5, 7], torch.tensor(9.0))
    before = state(model)
    want = "Start it with --checkpoint NAME=FOLDER or --table NAME=FILE.safetensors:TENSOR; if "
    of_shape = [each for each in client_of_tables.list_tables() if each.shape == (ROWS + 2, 32)]
    refused = refusal(client_of_tables, model)
    assert refused.startswith(
        "model: got model.decoder.embed_positions.weight, float32 [122, 32] of sha256:"
    )
    assert want in refused
    assert {each.dtype.name for each in of_shape} == {"float32", "bfloat16"}
    for each in of_shape:
        assert f"{each.name} ({each.dtype}, sha256:{each.sha256})" in refused
    assert refused.count("sha256:") == 1 + len(of_shape)
    assert f"it has none of this shape. {want}" in refusal(client, model)
    assert state(model) == before


def test_one_modified_table_of_two_is_rejected(client_of_tables: attnbias.Client) -> None:
    model = new_model("bart")
    before = state(model)
    model.model.decoder.embed_positions.weight.neg_()
    refused = refusal(client_of_tables, model)
    assert refused.startswith("model: got model.decoder.embed_positions.weight, float32 [122, 32]")
    assert state(model) == before


def step(model: Any, name: str) -> None:
    """Runs one training step on all parameters."""
    model.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sum(output.square().mean() for output in outputs(model, name)).backward()
    optimizer.step()
    model.requires_grad_(False)


@pytest.mark.parametrize("cache_bytes", [None, 1 << 20, 10])  # no cache, one entry, a full cache
@pytest.mark.parametrize("name", ["roberta", "gpt2", "bart", "vit"])
def test_tables_are_trainable(
    mounted: str, tmp_path: Path, name: str, cache_bytes: int | None
) -> None:
    model = new_model(name)
    own, first = copy.deepcopy(model), copy.deepcopy(model)
    folder = tmp_path / "cache"
    cache = "" if cache_bytes is None else folder
    with attnbias.Client(mounted, cache=cache, cache_bytes=cache_bytes) as client:
        with attnbias.attach(model, client, max_length=ROWS):
            kept = {path: path.read_bytes() for path in folder.rglob("*.safetensors")}
            assert bool(kept) == (cache_bytes == 1 << 20)
            step(model, name)
            attached = outputs(model, name)
        # Training changes only the process's own tables.
        assert all(path.read_bytes() == before for path, before in kept.items())
        step(own, name)
        assert_same(attached, outputs(own, name))
        assert_same(outputs(model, name), attached)
        tables = zip(weights(model, name).values(), weights(first, name).values(), strict=True)
        assert all(not torch.equal(now, before) for now, before in tables)


def mapping_of(tensor: Tensor) -> str:
    """Returns the line of /proc/self/maps that contains a tensor."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if begin <= tensor.data_ptr() < end:
            return line
    message = "no mapping contains the tensor"
    raise AssertionError(message)


def test_model_reads_tables_from_cache(mounted: str, tmp_path: Path) -> None:
    model, folder = new_model("bart"), tmp_path / "cache"
    want = outputs(model, "bart")
    for connect in (partial(attnbias.Client, mounted), partial(attnbias.Client, offline=True)):
        with connect(cache=folder) as client, attnbias.attach(model, client, max_length=ROWS):
            for table in weights(model, "bart").values():
                assert str(folder / "tensors") in mapping_of(table)
            assert_same(outputs(model, "bart"), want)
    for table in weights(model, "bart").values():
        assert str(folder) not in mapping_of(table)
    want_it = pytest.raises(attnbias.NotFoundError, match="get it once with an online client that")
    with attnbias.Client(cache=folder, offline=True) as client, want_it:
        attnbias.attach(new_model("gpt2"), client, max_length=ROWS)


def test_whisper_decoder_table_falls_back_to_model(
    client: attnbias.Client, client_of_tables: attnbias.Client
) -> None:
    """The decoder uses the server's table if it has one, and the model's own otherwise."""
    model = new_model("whisper")
    own = copy.deepcopy(model)
    table = model.model.decoder.embed_positions.weight
    memory = table.data_ptr()

    def close(got: list[Tensor]) -> None:
        """Compares approximately: the encoder has the server's sinusoids in both cases."""
        for one, other in zip(got, outputs(own, "whisper"), strict=True):
            assert_close(one, other)

    with attnbias.attach(model, client, max_length=ROWS) as attached:
        encoder, decoder = attached.report()
        assert (encoder.left, decoder.left) == (False, True)
        assert decoder.path == "model.decoder.embed_positions.weight"
        assert (decoder.fetched_bytes, decoder.spared_bytes) == (0, 0)
        without = outputs(model, "whisper")
        close(without)
        assert table.data_ptr() == memory
    assert str(decoder) == (
        "model.decoder.embed_positions.weight: left unchanged; neither the server nor the cache "
        f"has {decoder.encoding}"
    )
    with attnbias.attach(model, client_of_tables, max_length=ROWS) as attached:
        encoder, decoder = attached.report()
        assert (encoder.left, decoder.left) == (False, False)
        assert decoder.fetched_bytes == table.nbytes
        assert decoder.encoding == replace(
            attnbias.from_config(model.config)["decoder.positions"], table=decoder.encoding.table
        )
        assert table.data_ptr() != memory
        assert_same(outputs(model, "whisper"), without)
    assert_same(outputs(model, "whisper"), outputs(own, "whisper"))


@pytest.mark.parametrize(
    ("part", "path"),
    [
        (lambda: new_model("whisper").model.decoder, "embed_positions.weight"),
        (lambda: new_model("bart").model.encoder, "embed_positions.weight"),
        (lambda: new_model("gpt2").transformer, "wpe.weight"),
    ],
)
def test_part_of_model_can_be_attached(
    client: attnbias.Client, client_of_tables: attnbias.Client, part: Callable[[], Any], path: str
) -> None:
    model = part()
    with attnbias.attach(model, client_of_tables, max_length=ROWS) as attached:
        assert [one.path for one in attached.report()] == [path]
    assert refusal(client, model).startswith(f"model: got {path}, float32 ")

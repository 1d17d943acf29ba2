# SPDX-License-Identifier: Apache-2.0
"""Every module and function in transformers that computes or learns one vector per sequence
position.

Each is served, or listed in the table in docs/encodings.md, every row of which is run.
sinusoidal_axes_test.py covers images, relative_sinusoid_test.py distances, and
default_configs_test.py and advice_test.py rotary positions.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from bits import Array, assert_same_bits, to_array
from bounds import assert_near
from pages import names_in, section_of
from real import encoding_of
from transformers import models
from transformers.models.pp_doclayout_v2.configuration_pp_doclayout_v2 import (
    PPDocLayoutV2ReadingOrderConfig,
)

import attnbias

NAME = re.compile(
    r"^class (\w*(?:Sin[a-z]*(?:Position|Embed)|Learned\w*Position)\w*)\(", re.MULTILINE
)
# Arguments that determine the results of modules for images.
OF_IMAGES = {"shape", "width", "pixel_values"}
LENGTH, DIM = 50, 12


def find_modules() -> dict[str, Any]:
    """Maps FOLDER.CLASS to the class."""
    found = {}
    for path in sorted(Path(models.__path__[0]).glob("*/modeling_*.py")):
        names = NAME.findall(path.read_text())
        if not names:
            continue
        modeling = importlib.import_module(f"{models.__name__}.{path.parent.name}.{path.stem}")
        for name in names:
            kind = getattr(modeling, name)
            if not OF_IMAGES & inspect.signature(kind.forward).parameters.keys():
                found[f"{path.parent.name}.{name}"] = kind
    return found


MODULES = find_modules()
LEARNED = [name for name in MODULES if "Learned" in name]
SINUSOIDAL = [name for name in MODULES if "Learned" not in name]


def make(kind: Any) -> Any:
    """Constructs a module with LENGTH positions of DIM columns, matching its parameters by name."""
    config = SimpleNamespace(
        max_position_embeddings=LENGTH,
        hidden_size=DIM,
        frequency_embedding_size=DIM,
        diffusion_max_period=10000,
    )
    arguments = {
        "num_positions": LENGTH,
        "num_embeddings": LENGTH,
        "length": LENGTH,
        "embedding_dim": DIM,
        "embed_dim": DIM,
        "channels": DIM,
        "dim": DIM,
        "config": config,
        "padding_idx": 1,
    }
    wanted = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in arguments.items() if name in wanted})


def rows_of(module: Any) -> Array:
    """Returns a module's rows for positions 0, 1, 2 …, from its table or by calling it."""
    if hasattr(module, "create_weight"):
        return to_array(module.create_weight())
    if isinstance(module, torch.nn.Embedding):  # filled by the model that it is part of
        return to_array(module.get_embedding(*module.weight.shape, module.padding_idx))
    for name in ("weights", "positional_embedding"):
        if hasattr(module, name):
            return to_array(getattr(module, name))
    positions = torch.arange(LENGTH).float()
    if "inputs_embeds" in inspect.signature(module.forward).parameters:
        return to_array(module(torch.empty(1, LENGTH, DIM))[0])
    scale = {"scale": 1} if "scale" in inspect.signature(module.forward).parameters else {}
    return to_array(module(positions, **scale))


ADVICE = {
    name: row.cells
    for row in section_of("encodings.md", "Position modules")
    for name in names_in(row.cells[0])
}


@pytest.mark.parametrize("name", SINUSOIDAL)
def test_sinusoidal_matches_modules(client: attnbias.Client, name: str) -> None:
    _, ask = ADVICE.get(MODULES[name].__name__, ("", ""))
    columns = "COSINES_SINES" if "COSINES_SINES" in ask else "SINES_COSINES"
    want = rows_of(make(MODULES[name]))
    # fairseq's modules have zeros for padding.
    positions = [p for p in range(LENGTH) if want[p].any()]
    assert len(positions) >= LENGTH - 1

    def is_layout(layout: str) -> bool:
        encoding = replace(encoding_of(layout, DIM), columns=columns)
        got = client.get(encoding, position_ids=positions)
        try:
            assert_near(got, want[positions], np.array(positions))
        except AssertionError:
            return False
        return True

    assert any(map(is_layout, ("SINES_COSINES", "TENSOR2TENSOR")))


@pytest.mark.parametrize("name", LEARNED)
def test_learned_positions_match_modules(client: attnbias.Client, name: str) -> None:
    module = make(MODULES[name])
    by_shape = "input_ids_shape" in inspect.signature(module.forward).parameters
    with torch.no_grad():
        answer = module(torch.Size([1, 9]) if by_shape else torch.ones(1, 9, dtype=torch.long))
    encoding = attnbias.LearnedAbsolute(
        table=to_array(module.weight), offset=getattr(module, "offset", 0)
    )
    assert_same_bits(client.get(encoding, positions=9), to_array(answer).reshape(9, DIM))


def test_finds_enough_modules() -> None:
    assert len(LEARNED) >= 12
    assert len(SINUSOIDAL) >= 25


Case = Callable[[attnbias.Client], None]
CASES: dict[str, Case] = {}


def case(*names: str) -> Callable[[Case], Case]:
    """Registers a function as the case for these names in the page's table."""

    def add(function: Case) -> Case:
        CASES.update(dict.fromkeys(names, function))
        return function

    return add


def code_of(family: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{models.__name__}.{family}.modeling_{family}"), name)


def check(
    client: attnbias.Client, layout: str, want: Array, positions: list[float], **fields: Any
) -> None:
    """Compares with the rows for these positions."""
    scale, columns = fields.pop("scale", 1.0), fields.pop("columns", None)
    encoding = encoding_of(layout, want.shape[1], **fields)
    encoding = replace(encoding, columns=columns or encoding.columns)
    got = client.get(encoding, position_ids=positions, scale=scale)
    assert_near(got, want, np.array(positions) * fields.get("min_timescale", 1))


ALL: list[float] = [*range(LENGTH)]


@case("create_sinusoidal_embeddings", "_create_sinusoidal_embeddings")
def create_sinusoidal_embeddings(client: attnbias.Client) -> None:
    for family, name in (
        ("distilbert", "create_sinusoidal_embeddings"),
        ("distilbert", "_create_sinusoidal_embeddings"),
        ("flaubert", "create_sinusoidal_embeddings"),
        ("xlm", "create_sinusoidal_embeddings"),
    ):
        table = torch.empty(LENGTH, DIM)
        code_of(family, name)(LENGTH, DIM, table)
        check(client, "INTERLEAVED", to_array(table), ALL)


@case("get_sinusoid_encoding_table")
def videomae(client: attnbias.Client) -> None:
    table = code_of("videomae", "get_sinusoid_encoding_table")(LENGTH, DIM)[0]
    check(client, "INTERLEAVED", to_array(table), ALL)


@case("Florence2VisionPositionalEmbeddingCosine1D")
def florence_2(client: attnbias.Client) -> None:
    vision = SimpleNamespace(embed_dim=[4, DIM], max_temporal_embeddings=LENGTH)
    kind = code_of("florence2", "Florence2VisionPositionalEmbeddingCosine1D")
    rows = kind(SimpleNamespace(vision_config=vision))(torch.empty(1, LENGTH, DIM))
    check(client, "INTERLEAVED", to_array(rows), ALL)


@case("Nemotron3_5TranscribeSpeakerEmbedding")
def speakers(client: attnbias.Client) -> None:
    kind = code_of("nemotron3_5_transcribe", "Nemotron3_5TranscribeSpeakerEmbedding")
    module = kind(SimpleNamespace(num_speakers=8, hidden_size=DIM))
    check(client, "INTERLEAVED", to_array(module(torch.eye(8))), list(range(8)))


@case("positional_encoding", "create_sinusoidal_positions", "ZoeDepthPatchTransformerEncoder")
def functions(client: attnbias.Client) -> None:
    ctrl = code_of("ctrl", "positional_encoding")(LENGTH, DIM, torch.float32)
    check(client, "SINES_COSINES", to_array(ctrl), ALL)
    video_prism = code_of("videoprism", "create_sinusoidal_positions")(LENGTH, DIM)
    check(client, "SINES_COSINES", to_array(video_prism), ALL)
    zoe_depth = code_of("zoedepth", "ZoeDepthPatchTransformerEncoder").positional_encoding_1d
    check(client, "SINES_COSINES", to_array(zoe_depth(None, 1, LENGTH, DIM)[0]), ALL)


MUSICGEN = {
    "musicgen": "MusicgenSinusoidalPositionalEmbedding",
    "musicgen_melody": "MusicgenMelodySinusoidalPositionalEmbedding",
}


@case(*MUSICGEN.values())
def musicgen(client: attnbias.Client) -> None:
    for family, name in MUSICGEN.items():
        rows = to_array(code_of(family, name)(LENGTH, DIM).weights)
        check(client, "TENSOR2TENSOR", rows, ALL, columns="COSINES_SINES")


# Exact in float32.
TIMES = [0.0, 0.5, 0.25, 7.8125e-3, 1.0, 3.140625]


@case(
    "VibeVoiceDiffusionHeadSinusoidalEmbedding",
    "PocketTTSTimestepEmbedding",
    "GradiumPhononTTSTimestepEmbedding",
    "VoxtralRealtimeTimeEmbedding",
)
def times(client: attnbias.Client) -> None:
    at = torch.tensor([*ALL, *TIMES])
    vibe_voice = make(code_of("vibevoice", "VibeVoiceDiffusionHeadSinusoidalEmbedding"))
    voxtral = code_of("voxtral_realtime", "VoxtralRealtimeTimeEmbedding")(DIM)
    rows = [vibe_voice(at), torch.stack([voxtral(time) for time in at])]
    for family, name in (
        ("pocket_tts", "PocketTTSTimestepEmbedding"),
        ("gradium_phonon_tts", "GradiumPhononTTSTimestepEmbedding"),
    ):
        config: Any = SimpleNamespace(frequency_embedding_size=DIM, max_period=10000)
        angles = at[:, None] * code_of(family, name).compute_default_freqs(config)
        rows.append(torch.cat([angles.cos(), angles.sin()], dim=1))
    for each in rows:
        check(client, "SINES_COSINES", to_array(each), at.tolist(), columns="COSINES_SINES")


@case("SinusPositionEmbedding")
def qwen_2_5_omni(client: attnbias.Client) -> None:
    module = code_of("qwen2_5_omni", "SinusPositionEmbedding")(DIM)
    check(client, "TENSOR2TENSOR", to_array(module(torch.arange(LENGTH) / 1000)), ALL)
    times = [1000 * time for time in TIMES]
    check(client, "TENSOR2TENSOR", to_array(module(torch.tensor(TIMES))), times)


@case("PI0TimestepEmbeddings")
def pi_0(client: attnbias.Client) -> None:
    kind = code_of("pi0", "PI0TimestepEmbeddings")
    dit = SimpleNamespace(hidden_size=DIM)
    module = kind(SimpleNamespace(dit_config=dit, min_period=4e-3, max_period=4.0))
    scale = 2 * np.pi / 4e-3
    encoding = attnbias.Sinusoidal(
        DIM,
        columns="SINES_COSINES",
        axes=[attnbias.Axis(scale=scale)],
        ladder=attnbias.Ladder(timescales=attnbias.Timescales(max=4.0 / 4e-3)),
    )
    got = client.get(encoding, position_ids=TIMES)
    assert_near(got, to_array(module(torch.tensor(TIMES))), scale * np.array(TIMES))


@case("BrosPositionalEmbedding1D")
def bros(client: attnbias.Client) -> None:
    module = code_of("bros", "BrosPositionalEmbedding1D")(
        SimpleNamespace(dim_bbox_sinusoid_emb_1d=DIM)
    )
    differences = torch.tensor([*range(-20, 20), *TIMES])
    rows = module(differences[:, None, None])[:, 0, 0]
    check(client, "SINES_COSINES", to_array(rows), differences.tolist())


def check_boxes(client: attnbias.Client, coordinates: list[torch.Tensor], want: Array) -> None:
    """Compares with the rows for boxes, whose coordinates are between 0 and 1."""
    axis = attnbias.Axis(scale=2 * np.pi, ladder=attnbias.Ladder())
    encoding = attnbias.Sinusoidal(want.shape[-1], axes=[axis] * len(coordinates))
    got = client.get(encoding, position_ids=[to_array(each) for each in coordinates])
    assert_near(got, want, np.full(len(want), 2 * np.pi))


BOXES = ("conditional_detr", "dab_detr", "grounding_dino", "lw_detr", "mm_grounding_dino")


@case("encode_sinusoidal_position_embedding", "DeformableDetrModel")
def boxes(client: attnbias.Client) -> None:
    corners = torch.tensor(TIMES[:4]), torch.tensor(TIMES[2:])
    for family in (*BOXES, "rf_detr"):
        encode = code_of(family, "encode_sinusoidal_position_embedding")
        rows = to_array(encode(torch.stack(corners, dim=-1), num_pos_feats=DIM))
        check_boxes(client, [corners[1], corners[0]], rows)
    config = SimpleNamespace(config=SimpleNamespace(d_model=2 * DIM))
    encode = code_of("deformable_detr", "DeformableDetrModel").get_proposal_pos_embed
    proposals = torch.linspace(-3, 3, 20).reshape(1, 5, 4)
    rows = to_array(encode(config, proposals)[0])
    check_boxes(client, list(proposals[0].sigmoid().T), rows)


@case("CanaryPositionalEmbedding")
def canary(client: attnbias.Client) -> None:
    module = code_of("canary", "CanaryPositionalEmbedding")(LENGTH, DIM)
    scale = 1 / np.sqrt(DIM)
    check(client, "SINES_COSINES", to_array(module(torch.arange(LENGTH))), ALL, scale=scale)


@case("SpeechT5ScaledPositionalEncoding")
def speech_t5(client: attnbias.Client) -> None:
    module = code_of("speecht5", "SpeechT5ScaledPositionalEncoding")(0.0, DIM)
    with torch.no_grad():
        module.alpha.fill_(0.75)
        rows = module(torch.zeros(1, LENGTH, DIM))[0]
    check(client, "INTERLEAVED", to_array(rows), ALL, scale=0.75)


@case("FunAsrNanoPositionEmbedding")
def fun_asr_nano(client: attnbias.Client) -> None:
    module = code_of("fun_asr_nano", "FunAsrNanoPositionEmbedding")(LENGTH, DIM)
    rows = module(torch.empty(1, LENGTH - 1, DIM))
    check(client, "TENSOR2TENSOR", to_array(rows), ALL[1:])


@case("TimesFmPositionalEmbedding", "TimesFm2_5PositionalEmbedding")
def times_fm(client: attnbias.Client) -> None:
    scales = {"min_timescale": 2, "max_timescale": 5000}
    for family, name in (
        ("timesfm", "TimesFmPositionalEmbedding"),
        ("timesfm2_5", "TimesFm2_5PositionalEmbedding"),
    ):
        module = code_of(family, name)(SimpleNamespace(hidden_size=DIM, **scales))
        check(client, "TENSOR2TENSOR", to_array(module(LENGTH)[0]), ALL, **scales)


@case("PatchTSTPositionalEncoding", "PatchTSMixerPositionalEncoding")
def patches_in_time(client: attnbias.Client) -> None:
    table = client.get(attnbias.Sinusoidal(dim=DIM), positions=LENGTH, data_type="f64")
    got = (table - table.mean()) / (10 * table.std(ddof=1))
    config: Any = SimpleNamespace(
        use_cls_token=False,
        num_input_channels=1,
        d_model=DIM,
        num_patches=LENGTH,
        positional_encoding_type="sincos",
        positional_dropout=0.0,
        use_positional_encoding=True,
    )
    patch_tst = code_of("patchtst", "PatchTSTPositionalEncoding")(config, LENGTH)
    mixer = code_of("patchtsmixer", "PatchTSMixerPositionalEncoding")(config)
    for module in (patch_tst, mixer):
        assert_near(got, to_array(module.position_enc), np.arange(LENGTH))


@case("Kimi_K25VisionPositionEmbeddings")
def kimi(client: attnbias.Client) -> None:
    sizes = {"hidden_size": DIM, "pos_emb_height": 2, "pos_emb_width": 2}
    kind = code_of("kimi_k25", "Kimi_K25VisionPositionEmbeddings")
    rows = to_array(kind(SimpleNamespace(pos_emb_time=LENGTH, **sizes)).time_position_embeddings)
    assert not rows[0].any()
    check(client, "SINES_COSINES", rows[1:], ALL)


def sines_then_cosines(
    client: attnbias.Client, frequencies: Array, positions: list[int], **axis: float
) -> Array:
    encoding = attnbias.Sinusoidal(
        2 * len(frequencies),
        columns="sines_cosines",
        ladder=attnbias.Ladder(frequencies=frequencies.tolist()),
        axes=[attnbias.Axis(**axis)],
    )
    return client.get(encoding, position_ids=positions)


@case("get_1d_sine_pe")
def pointers(client: attnbias.Client) -> None:
    most, half = 15, DIM // 2
    frequencies = np.repeat(10000.0 ** (-2 * np.arange(half // 2) / half), 2)
    got = sines_then_cosines(client, frequencies, list(range(16)), length=most)
    for family in ("sam2_video", "sam3_tracker_video", "edgetam_video"):
        want = code_of(family, "get_1d_sine_pe")(torch.arange(16) / most, DIM)
        assert_near(got, to_array(want), np.ones(16))


@case("generate_fourier_features")
def perceiver(client: attnbias.Client) -> None:
    linear = code_of("perceiver", "build_linear_positions")([LENGTH])[None]
    features = code_of("perceiver", "generate_fourier_features")(
        linear, num_bands=6, max_resolution=[LENGTH], concat_pos=False
    )
    frequencies = np.pi * np.linspace(1, LENGTH / 2, 6)
    axis = {"offset": (1 - LENGTH) / 2, "scale": 2, "length": LENGTH - 1}
    got = sines_then_cosines(client, frequencies, ALL, **axis)
    assert_near(got, to_array(features), np.full(LENGTH, LENGTH * np.pi / 2))


@case("Gemma3nAudioRelativePositionEmbedding", "Gemma4AudioRelPositionalEncoding")
def gemma_audio(client: attnbias.Client) -> None:
    config = hf.Gemma3nAudioConfig(hidden_size=24, conf_num_attention_heads=2)
    gemma_3n = code_of("gemma3n", "Gemma3nAudioRelativePositionEmbedding")(config)
    far = list(range(gemma_3n.max_backward, -gemma_3n.max_forward - 1, -1))
    signal = gemma_3n._get_timing_signal_1d_pos(torch.tensor([far]), torch.float32)[0]
    check(client, "TENSOR2TENSOR", to_array(signal), far)

    gemma_4 = code_of("gemma4", "Gemma4AudioRelPositionalEncoding")(hf.Gemma4AudioConfig())
    rows = to_array(gemma_4(torch.empty(0))[0])
    check(client, "TENSOR2TENSOR", rows, list(range(len(rows) - 1, -1, -1)))


@case("FunnelAttentionStructure")
def funnel(client: attnbias.Client) -> None:
    config = hf.FunnelConfig(d_model=DIM, attention_type="relative_shift")
    structure = code_of("funnel", "FunnelAttentionStructure")(config).eval()
    cpu = torch.device("cpu")
    (first, _), (second, _), *_ = structure.get_position_embeds(LENGTH, torch.float32, cpu)
    check(client, "SINES_COSINES", to_array(first), list(range(LENGTH, -LENGTH, -1)))
    distances = list(range(len(second), -len(second), -2))
    check(client, "SINES_COSINES", to_array(second), distances[: len(second)])


SAM = {
    "sam": "SamPositionalEmbedding",
    "sam2": "Sam2PositionalEmbedding",
    "sam2_video": "Sam2VideoPositionalEmbedding",
    "sam3_tracker": "Sam3TrackerPositionalEmbedding",
    "sam3_tracker_video": "Sam3TrackerVideoPositionalEmbedding",
    "sam_hq": "SamHQPositionalEmbedding",
    "edgetam": "EdgeTamPositionalEmbedding",
    "edgetam_video": "EdgeTamVideoPositionalEmbedding",
}


@case(*SAM.values())
def sam(client: attnbias.Client) -> None:
    coordinates = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    axis = attnbias.Axis(scale=4 * np.pi, offset=-0.5)
    config = SimpleNamespace(scale=1.0, num_pos_feats=8, hidden_size=16)
    for family, name in SAM.items():
        module = code_of(family, name)(config)
        matrix = to_array(module.positional_embedding.detach())
        with torch.no_grad():
            want = to_array(module(coordinates[None, None])[0, 0])
        encoding = attnbias.Sinusoidal(
            16, columns="SINES_COSINES", axes=[axis, axis], frequency_matrix=matrix
        )
        got = client.get(encoding, position_ids=[*to_array(coordinates.T)])
        assert_near(got, want, np.full(30, 2 * np.pi * np.abs(matrix).sum(axis=0).max()))


@case("PPDocLayoutV2PositionRelationEmbedding")
def relations_of_boxes(client: attnbias.Client) -> None:
    config = PPDocLayoutV2ReadingOrderConfig()
    module = code_of("pp_doclayout_v2", "PPDocLayoutV2PositionRelationEmbedding")(config)
    boxes = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    logarithms = module.box_relative_encoding(boxes, boxes).flatten(0, 1)
    scale = config.relation_bias_scale
    want = module.get_position_embedding(logarithms, scale)
    axis = attnbias.Axis(scale=scale, ladder=attnbias.Ladder(base=config.relation_bias_theta**2))
    encoding = attnbias.Sinusoidal(
        4 * config.relation_bias_embed_dim, columns="SINES_COSINES", axes=[axis] * 4
    )
    got = client.get(encoding, position_ids=[*to_array(logarithms.T)])
    reach = scale * float(logarithms.abs().max())
    assert_near(got, to_array(want), np.full(len(got), reach))


def test_every_row_has_a_case() -> None:
    assert ADVICE.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_documented_request_matches_module(client: attnbias.Client, name: str) -> None:
    CASES[name](client)


# Sinusoids that other tests compare, by the names of their users.
ELSEWHERE = re.compile(
    r"(Rotary|Ro[Pp][Ee]).*Embedding|^(ClvpSelfAttention|LightGluePositionalEncoder"
    r"|MLCDVisionModel|rotate_queries_or_keys)$"  # default_configs_test.py, advice_test.py
    r"|SinePositionEmbedding|PositionEmbeddingSine|^build_2d_sinusoidal_position_embedding$"
    r"|^OmDetTurboHybridEncoder$"  # sinusoidal_axes_test.py
    r"|Conformer\w*RelPosition|EncoderRelPosition|^(Wav2Vec2BertRelPositionalEmbedding"
    r"|XLNetModel)$"  # relative_sinusoid_test.py
    r"|^sinusoids$"  # sinusoidal_peers_test.py
)
# Base classes that fill a module's table at initialization, as the module itself does.
COPIES = re.compile(r"PreTrainedModel$")
# Audio waves, activations, and a duration.
NO_POSITIONS = re.compile(r"Snake|ISTFTHead$|sinc_filter|^GradiumPhononTTSModel$")


def takes_sines(node: ast.AST) -> bool:
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("sin", "polar")
        for call in ast.walk(node)
    )


def test_every_sinusoidal_module_is_known() -> None:
    unknown = set()
    tested = {kind.__name__ for kind in MODULES.values()} | ADVICE.keys()
    for path in sorted(Path(models.__path__[0]).glob("*/modeling_*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name in tested:
                continue
            known = any(names.search(node.name) for names in (ELSEWHERE, COPIES, NO_POSITIONS))
            if not known and takes_sines(node):
                unknown.add(f"{path.parent.name}.{node.name}")
    assert unknown == set()

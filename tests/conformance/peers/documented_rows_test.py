# SPDX-License-Identifier: Apache-2.0
"""The tables in docs/encodings.md and docs/encodings/: every row has a test that runs it."""

import re
from typing import Any

import advice_test
import alibi_test
import checkpoint_test
import deberta_buckets_test
import deberta_test
import default_configs_test
import golden_test
import grid_relative_test
import kerple_sandwich_test
import learned_absolute_test
import learned_relative_test
import position_mlp_test
import position_modules_test
import register_test
import relative_sinusoid_test
import rotary_test
import shaw_test
import sinusoidal_axes_test
import sinusoidal_peers_test
import sinusoidal_rounding_test
import survey_test
import swin_v2_test
import t5_bias_test
import t5_buckets_test
import t5_family_test
import tupe_test
from pages import DOCS, Row, rows_of, section_of

from attnbias._models.register import MODELS

MODEL_TYPE = re.compile(r"`([\w-]+)`")
PAGES = [
    "encodings.md",
    *(f"encodings/{path.name}" for path in sorted((DOCS / "encodings").glob("*.md"))),
]

# Keyed by section and by the first cell of a row; None means all rows of the section.
TESTS: dict[str, dict[str | None, list[Any]]] = {
    "Axes and columns": {None: [default_configs_test.test_every_rope_type_is_served_or_documented]},
    "Parameters that a module ignores": {
        None: [default_configs_test.test_every_rope_type_is_served_or_documented]
    },
    "Configurations that need other parameters": {None: [advice_test.test_every_row_has_a_case]},
    "Configurations without `rope_parameters`": {None: [advice_test.test_every_row_has_a_case]},
    "Position modules": {None: [position_modules_test.test_every_row_has_a_case]},
    "Encodings in a checkpoint": {None: [checkpoint_test.test_specs_match_model]},
    "Resampling": {
        None: [
            learned_absolute_test.test_resampled_sequence_matches_torch,
            learned_absolute_test.test_resampled_grid_matches_torch,
            learned_absolute_test.test_scale_factors_match_torch,
        ]
    },
    "T5": {
        "UMT5": [t5_family_test.test_matches_umt5_and_mt5],
        "MPNet": [t5_family_test.test_matches_mpnet],
        "LongT5, local attention": [t5_family_test.test_matches_longt5_local],
        "WavLM, UniLM": [t5_family_test.test_matches_wavlm],
        "LayoutLMv2, LayoutLMv3": [
            t5_family_test.test_matches_layoutlm,
            t5_family_test.test_layoutlmv3_divides_bias_by_square_root_of_head_size,
        ],
        "PP-DocLayoutV2's reading order, with `has_relative_attention_bias`": [
            t5_family_test.test_matches_pp_doclayout_v2
        ],
        "UDOP": [t5_family_test.test_matches_udop],
        "Switch Transformers, Pop2Piano, Pix2Struct's decoder": [
            t5_family_test.test_t5_derived_models_match
        ],
        "ProphetNet": [t5_family_test.test_matches_prophetnet],
        "CPM-Ant": [t5_family_test.test_matches_cpm_ant],
    },
    "ALiBi": {
        "`SYMMETRIC`": [alibi_test.test_matches_x_transformers],
        "`CAUSAL`": [alibi_test.test_variants_agree_up_to_softmax],
        "`KEY_FROM_START`": [
            alibi_test.test_matches_bloom,
            alibi_test.test_matches_falcon_up_to_exact_bf16_positions,
        ],
        "`KEY_FROM_END`": [alibi_test.test_matches_mpt],
        "attending to the left": [alibi_test.test_one_sided_heads_combine_two_answers],
        "attending to the right": [alibi_test.test_one_sided_heads_combine_two_answers],
        "with unequal slopes for left and right, no mask": [
            alibi_test.test_bias_with_slopes_per_direction_is_sum_of_two_answers
        ],
    },
    "LearnedRelative": {None: [learned_relative_test.test_gathers_rows_of_the_table]},
    "KERPLE": {None: [kerple_sandwich_test.test_kerple_matches_paper]},
    "Coordinate MLPs": {
        "`SwinV2`": [swin_v2_test.test_matches_swin_v2],
        "`RelPosMlp` (timm's mode `cr`)": [survey_test.test_each_row_matches_its_function],
        "CrossFormer's `DynamicPosBias`": [
            position_mlp_test.test_matches_crossformer_in_two_dimensions
        ],
        "`DynamicPositionBias` (x-transformers)": [
            position_mlp_test.test_matches_dynamic_position_bias
        ],
    },
    "DeBERTa": {None: [deberta_test.test_indices_match_transformers]},
    "Distances": {
        "TransformerXL": [relative_sinusoid_test.test_matches_transformer_xl_paper],
        "XLNet": [relative_sinusoid_test.test_matches_xlnet],
        "Conformer": [relative_sinusoid_test.test_matches_conformer],
        "SymmetricSinusoidal": [relative_sinusoid_test.test_symmetric_vectors_match_table_rows],
    },
    "Learned biases": {
        "Swin": [grid_relative_test.test_swin_bias_matches_in_every_form],
        "Swin3D": [survey_test.test_each_row_matches_its_function],
        "Beit": [grid_relative_test.test_beit_bias_matches_in_every_form],
        "LeViT": [grid_relative_test.test_matches_levit],
    },
    "Rotary": {
        "`HALF`": [rotary_test.test_float32_angles_match_framework],
        "`INTERLEAVED`": [rotary_test.test_matches_gpt_j],
        "`COMPACT`": [golden_test.test_rotary_layouts_are_permutations],
    },
    "Length extensions": {
        **{
            f"`{extension}`": [rotary_test.test_parameters_match_transformers]
            for extension in ("linear", "yarn", "longrope", "llama3", "proportional")
        },
        "`ntk`": [rotary_test.test_matches_x_transformers],
        "`dynamic`": [rotary_test.test_dynamic_frequencies_match_at_each_length],
    },
    "Several axes": {
        "`mrope_section` (Qwen2-VL)": [rotary_test.test_multimodal_sections_match_module],
        "with `mrope_interleaved` (Qwen3-VL)": [rotary_test.test_multimodal_sections_match_module],
        "`rope_type` axial (vision towers of Qwen-VL, Gemma 4, SAM 2 and 3)": [
            rotary_test.test_axial_sections_match_formula,
            default_configs_test.test_every_default_is_served_or_documented,
        ],
    },
    "Columns": {
        "`INTERLEAVED`": [sinusoidal_peers_test.test_matches_float64_peers],
        "`SINES_COSINES`": [sinusoidal_peers_test.test_matches_float64_peers],
        "`COSINES_SINES`": [sinusoidal_axes_test.test_tables_are_correctly_rounded],
        "`SINE`": [sinusoidal_rounding_test.test_other_dims_and_bases_are_correctly_rounded],
        "`ZERO`": [sinusoidal_peers_test.test_is_close_to_float32_peers],
    },
    "Ladders": {
        "`ladder.base`": [sinusoidal_rounding_test.test_other_dims_and_bases_are_correctly_rounded],
        "`ladder.timescales`": [sinusoidal_rounding_test.test_tensor2tensor_is_correctly_rounded],
        "`ladder.frequencies`": [sinusoidal_axes_test.test_tables_are_correctly_rounded],
    },
    "Axes": {
        **{
            models: [sinusoidal_axes_test.test_fractional_positions_match_modules]
            for models in (
                "DETR, Conditional DETR, Table Transformer, MaskFormer, Mask2Former, OneFormer, "
                "SAM 2 and 3, EdgeTAM",
                "Deformable DETR",
                "DAB-DETR, Grounding DINO, MM Grounding DINO",
                "SAM 3's decoder",
            )
        },
        "RT-DETR, D-FINE, DEIMv2, PP-DocLayout": [
            sinusoidal_axes_test.test_integer_positions_match_modules
        ],
        "ViT-MAE, AIMv2, Granite-Docling, OmDet-Turbo": [
            sinusoidal_axes_test.test_matches_vit_mae,
            sinusoidal_axes_test.test_matches_aimv2,
            sinusoidal_axes_test.test_matches_granite_docling,
            sinusoidal_axes_test.test_matches_omdet_turbo,
        ],
        "DiT, PixArt": [survey_test.test_each_row_matches_its_function],
    },
    "TUPE": {
        "relative, b": [tupe_test.test_relative_term_matches_formula],
        "absolute, A": [tupe_test.test_absolute_term_matches_formula],
    },
    "The class token": {None: [golden_test.test_tupe_class_token_matches_known_values]},
}
# Tests for bit identity, or else for correct rounding, keyed by the first cell of a row.
BITS: dict[str, list[Any]] = {
    "T5 and models with its bias": [
        t5_bias_test.test_bias_matches_in_every_form,
        t5_buckets_test.test_causal_configurations_differ_only_as_committed,
        t5_buckets_test.test_shipped_configurations_match_torch_under_both_rules,
    ],
    "ALiBi": [
        alibi_test.test_matches_bloom,
        alibi_test.test_matches_mpt,
        alibi_test.test_matches_x_transformers,
    ],
    "learned positions, LearnedRelative, GridRelative": [
        learned_absolute_test.test_opt_starts_at_row_two,
        learned_relative_test.test_gathers_rows_of_the_table,
        shaw_test.test_relative_key_vectors_match_modules,
        grid_relative_test.test_swin_bias_matches_in_every_form,
        grid_relative_test.test_beit_bias_matches_in_every_form,
        grid_relative_test.test_matches_levit,
    ],
    "DeBERTa": [
        deberta_test.test_indices_match_transformers,
        deberta_buckets_test.test_differences_match_committed_ones,
    ],
    "rotary tables": [
        rotary_test.test_tables_are_correctly_rounded,
        rotary_test.test_float32_error_matches_docs,
        rotary_test.test_float32_angles_match_framework,
    ],
    "sinusoids of positions, images and distances": [
        sinusoidal_peers_test.test_matches_float64_peers,
        sinusoidal_peers_test.test_is_close_to_float32_peers,
        sinusoidal_axes_test.test_tables_are_correctly_rounded,
        relative_sinusoid_test.test_values_are_correctly_rounded,
    ],
    "all others, and TUPE's absolute term": [
        kerple_sandwich_test.test_kerple_matches_paper,
        kerple_sandwich_test.test_sandwich_matches_paper,
        position_mlp_test.test_fire_matches_paper,
        position_mlp_test.test_matches_dynamic_position_bias,
        position_mlp_test.test_matches_crossformer_in_two_dimensions,
        swin_v2_test.test_matches_swin_v2,
        tupe_test.test_absolute_term_matches_formula,
    ],
}
# Tables of contents and of shapes, which describe no request.
CONTENTS = {"Encodings", "Presets"}


def rows() -> list[Row]:
    found = [row for page in PAGES for row in rows_of(page) if row.section not in CONTENTS]
    assert len(found) >= 120
    return found


def test_rows_and_tests_correspond() -> None:
    documented: dict[str, set[str]] = {}
    for row in rows():
        documented.setdefault(row.section, set()).add(row.cells[0])
    assert documented.keys() == TESTS.keys()
    for section, tests in TESTS.items():
        if None not in tests:
            assert documented[section] == tests.keys(), section


def test_every_checkpoint_is_mounted_and_compared() -> None:
    table = section_of("encodings/checkpoints.md", "Encodings in a checkpoint")
    documented = {name for row in table for name in MODEL_TYPE.findall(row.cells[0])}
    documented -= {"relative_key"}
    assert documented <= {name for name, model in MODELS.items() if model.tables}
    by_register = {*register_test.LEARNED, *register_test.OF_PATCHES}
    by_register |= register_test.IN_FROM_CONFIG_TEST
    assert documented >= register_test.IN_CHECKPOINT_TEST
    assert documented <= register_test.IN_CHECKPOINT_TEST | by_register


def test_every_family_has_bit_exactness_tests() -> None:
    assert [row.cells[0] for row in section_of("numerics.md", "Bit compatibility")] == list(BITS)

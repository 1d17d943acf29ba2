# SPDX-License-Identifier: Apache-2.0
"""Names of transformers and torch that this package replaces, calls or reads.

Another version of either may lack a name, or give a function other parameters. ``require`` reports
that before a model is changed. A row is one of

- ``PLACE``: the name exists.
- ``PLACE(NAME NAME|NAME ...)``: a function has these parameters, in this order. ``NAME|NAME`` is
  either of two. ``...`` stands for any number of optional parameters. Rows of replaced functions
  have none: the replacement would ignore a parameter that it does not know.
- ``PLACE: NAME NAME``: instances of a class have these attributes.

A row that ends in ``< CALLER`` requires in addition that the code of CALLER, a neighbour in the
class or file, uses the name: otherwise a replacement has no effect. ``ROW or ROW`` requires one of
the two. ``t5.NAME`` is a place in transformers' file of the model t5, and ``*NAME`` each class in
the files of the model whose name ends so.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

_ATTACH: Final = (
    "transformers.PreTrainedModel._supports_flex_attn",
    "transformers.PreTrainedModel._supports_sdpa",
    "transformers.PreTrainedConfig: output_attentions",
    "transformers.PreTrainedConfig: _attn_implementation_internal < _attn_implementation",
    "torch.compiler.is_compiling()",
    "torch.compiler.disable(fn ...)",
)
_MASKS: Final = "transformers.masking_utils"
_MASK: Final = "batch_size q_length kv_length q_offset kv_offset mask_function attention_mask"
_FLEX: Final = (
    "torch.compile(model ... fullgraph ... recompile_limit ... isolate_recompiles ...)",
    "torch._dynamo.mark_static(t ...)",
    "torch.nn.attention.flex_attention.flex_attention"
    "(query key value score_mod block_mask scale enable_gqa ... kernel_options ...)",
    "torch.nn.attention.flex_attention.BlockMask.from_kv_blocks"
    "(kv_num_blocks kv_indices ... BLOCK_SIZE ... seq_lengths ...)",
    "transformers.AttentionInterface.register(key value)",
    f"{_MASKS}.AttentionMaskInterface.register(key value)",
    f"{_MASKS}.and_masks(*mask_functions)",
    f"{_MASKS}.bidirectional_mask_function(batch_idx head_idx q_idx kv_idx)",
    f"{_MASKS}.flex_attention_mask({_MASK} ... device ...)",
    f"{_MASKS}.padding_mask_function(padding_mask ...)",
    f"{_MASKS}.prepare_padding_mask(attention_mask kv_length kv_offset ...)",
    f"{_MASKS}.sdpa_mask({_MASK} ... device ...)",
    "transformers.integrations.sdpa_attention.sdpa_attention_forward"
    "(module query key value attention_mask ... scaling is_causal position_bias ...)",
)
_ALIBI: Final = (
    *_FLEX,
    f"{_MASKS}.create_causal_mask",
    "transformers.PreTrainedConfig: num_attention_heads",
    "transformers.cache_utils.Cache.update(key_states value_states layer_idx ...)",
    "transformers.cache_utils.Cache.get_mask_sizes(query_length layer_idx ...)",
)
_ALIBI_MODEL: Final = "input_ids cache|past_key_values attention_mask inputs_embeds ..."
_FROZEN: Final = ("torch.Tensor._version", "torch.Tensor.is_inference")
_BUCKETS: Final = "relative_attention_num_buckets relative_attention_max_distance is_decoder"
_LEARNS: Final = f"has_relative_attention_bias relative_attention_bias {_BUCKETS}"


def _of_t5(place: str) -> tuple[str, ...]:
    return (
        f"{place}.compute_bias(query_length key_length device past_seen_tokens) < forward",
        f"{place}: q n_heads {_LEARNS}",
    )


def _of_rotary(place: str) -> tuple[str, ...]:
    forward = f"{place}.forward"
    return (
        f"{forward}(x position_ids) or {forward}(x position_ids layer_type)",
        f"{place}: config rope_type",
    )


def _of_sinusoids(place: str) -> str:
    return f"{place}.forward(input_ids_shape cache_length|past_key_values_length position_ids)"


_T5: Final = (
    *_FLEX,
    *_of_t5("t5.T5Attention"),
    *_of_t5("mt5.MT5Attention"),
    *_of_t5("umt5.UMT5Attention"),
    *_of_t5("switch_transformers.SwitchTransformersAttention"),
)
_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "t5": _T5,
    "longt5": (
        *_T5,
        *_of_t5("longt5.LongT5Attention"),
        "longt5.LongT5LocalAttention.compute_bias(block_length) < forward",
        "longt5.LongT5LocalAttention.forward(hidden_states ...)",
        f"longt5.LongT5LocalAttention: block_len {_LEARNS}",
        "longt5.LongT5TransientGlobalAttention.compute_bias(block_length) < forward",
        "longt5.LongT5TransientGlobalAttention.forward(hidden_states ...)",
        "longt5.LongT5TransientGlobalAttention._relative_position_bucket"
        "(relative_position bidirectional num_buckets max_distance) < compute_side_bias",
        f"longt5.LongT5TransientGlobalAttention: block_len global_block_size {_LEARNS}",
    ),
    "mpnet": (
        *_T5,
        "mpnet.MPNetEncoder.compute_position_bias(x position_ids num_buckets) < forward",
        "mpnet.MPNetEncoder: relative_attention_bias",
    ),
    "bloom": (
        *_ALIBI,
        "bloom.BloomModel.build_alibi_tensor(attention_mask num_heads dtype) < forward",
        f"bloom.BloomModel.forward({_ALIBI_MODEL})",
        "bloom.BloomModel: num_heads config",
        "bloom.BloomAttention.forward(hidden_states residual alibi attention_mask layer_past"
        " use_cache output_attentions **kwargs)",
        "bloom.BloomAttention._reshape(fused_qkv)",
        "bloom.BloomAttention: query_key_value num_heads layer_idx attention_dropout"
        " inv_norm_factor dense hidden_dropout pretraining_tp slow_but_exact",
    ),
    "mpt": (
        *_ALIBI,
        "mpt.MptModel.build_mpt_alibi_tensor(num_heads sequence_length alibi_bias_max device)"
        " < forward",
        "mpt.create_causal_mask < MptModel.forward",
        f"mpt.MptModel.forward({_ALIBI_MODEL})",
        "mpt.MptModel: num_heads config",
        "mpt.MptAttention.forward(hidden_states position_bias cache|past_key_values attention_mask"
        " **kwargs)",
        "mpt.MptAttention: Wqkv clip_qkv n_heads head_dim layer_idx attn_dropout_p softmax_scale"
        " out_proj",
    ),
    "falcon": (
        *_ALIBI,
        *_of_rotary("falcon.FalconRotaryEmbedding"),
        "falcon.build_alibi_tensor(attention_mask num_heads dtype) < FalconModel.forward",
        "falcon.create_causal_mask < FalconModel.forward",
        "falcon.FalconModel: use_alibi num_heads config",
        "falcon.FalconAttention.forward(hidden_states alibi attention_mask position_ids layer_past"
        " use_cache output_attentions position_embeddings **kwargs)",
        "falcon.FalconAttention._split_heads(fused_qkv)",
        "falcon.FalconAttention: query_key_value num_heads head_dim layer_idx attention_dropout"
        " inv_norm_factor dense",
    ),
    "rotary": _of_rotary("*RotaryEmbedding"),
    "gptj": (
        "gptj.GPTJRotaryEmbedding.forward(x position_ids)"
        " or gptj.GPTJAttention._get_embed_positions(position_ids) < forward",
        "gptj.GPTJRotaryEmbedding: embed_positions or gptj.GPTJAttention: embed_positions",
    ),
    "sinusoidal": (
        _of_sinusoids("marian.MarianSinusoidalPositionalEmbedding"),
        _of_sinusoids("pegasus.PegasusSinusoidalPositionalEmbedding"),
        *(
            f"{place}.forward(input_ids inputs_embeds cache_length|past_key_values_length)"
            for place in (
                "m2m_100.M2M100SinusoidalPositionalEmbedding",
                "nllb_moe.NllbMoeSinusoidalPositionalEmbedding",
            )
        ),
        "speech_to_text.Speech2TextSinusoidalPositionalEmbedding.forward"
        "(input_ids cache_length|past_key_values_length)",
        "xglm.XGLMSinusoidalPositionalEmbedding.forward"
        "(position_ids cache_length|past_key_values_length)",
        "m2m_100.M2M100SinusoidalPositionalEmbedding.create_position_ids_from_inputs_embeds"
        " < forward",
        "m2m_100.M2M100SinusoidalPositionalEmbedding.create_position_ids_from_input_ids < forward",
        "xglm.XGLMSinusoidalPositionalEmbedding: offset",
        "fsmt.SinusoidalPositionalEmbedding.make_positions(tensor padding_idx) < forward",
        "whisper.WhisperPositionalEmbedding",
        "whisper.WhisperEncoder: embed_positions < forward",
        "torch.nn.Embedding.forward(input)",
    ),
    "learned": (),
    "windows": (
        *_FROZEN,
        "swin.SwinRelativePositionBias.forward()",
        "swin.SwinRelativePositionBias: relative_position_bias_table window_size",
        "beit.BeitRelativePositionBias.forward(window_size interpolate_pos_encoding dim_size)",
        "beit.BeitRelativePositionBias: relative_position_bias_table window_size",
    ),
    "swin_v2": (
        *_FROZEN,
        "swinv2.Swinv2SelfAttention: continuous_position_bias_mlp < forward",
        "swinv2.Swinv2SelfAttention: num_attention_heads window_size pretrained_window_size"
        " relative_coords_table",
        "torch.nn.Sequential.forward(input)",
    ),
}


def rows_of(family: str) -> tuple[str, ...]:
    """Returns the rows of all families, then those of one, by its name in the register."""
    return (*_ATTACH, *_FAMILIES[family])


def require(family: str, model: nn.Module) -> None:
    """Refuses a version of transformers or torch that the code of a family does not fit.

    The ImportError states the name, what it has, what is wanted, and the versions that work.
    Attributes are those of the instances in ``model``.
    """
    modules = list(model.modules())
    objects = [*modules, *(module.config for module in modules if hasattr(module, "config"))]
    for row in rows_of(family):
        choices = [one for choice in row.split(" or ") for one in spelled(choice, modules)]
        problems = [problem(choice, objects) for choice in choices]
        if all(problems):
            _refuse(" and ".join(problems) or f"{type(model).__name__} lacks {row}")


def spelled(row: str, modules: Iterable[nn.Module]) -> list[str]:
    """Returns the row with its whole place, once for each class that ``*`` stands for."""
    first, _, rest = row.partition(".")
    if first in ("torch", "transformers"):
        return [row]
    if not row.startswith("*"):
        return [f"transformers.models.{first}.modeling_{first}.{rest}"]
    end = re.split(r"\W", row[1:], maxsplit=1)[0]
    bases = {kind.__module__ for module in modules for kind in type(module).__mro__}
    return [
        f"{file}.{name}{row[1 + len(end) :]}"
        for file in sorted(bases)
        if file.startswith("transformers.models.")
        for name in vars(sys.modules[file])
        if name.endswith(end)
    ]


def problem(row: str, objects: Iterable[object]) -> str:
    """Returns what is not as a row has it, or an empty string."""
    place, parameters, attributes, caller = parsed(row)
    try:
        found: Any = pkgutil.resolve_name(place)
    except (ImportError, AttributeError):
        return f"{place} is missing"
    if parameters is not None:
        has = [each for each in inspect.signature(found).parameters.values() if each.name != "self"]
        if not _fits(has, parameters.split()):
            return f"{place} has the parameters ({_names(has)}), want ({parameters})"
    scope, _, used = place.rpartition(".")
    if attributes is not None:
        scope, used = place, attributes
        of_class = [each for each in objects if isinstance(each, found)]
        # An instance may lack what another has, such as the table that the layers share.
        lacking = ([a for a in attributes.split() if not hasattr(each, a)] for each in of_class)
        if missing := min(lacking, key=len, default=[]):
            return f"{place} lacks {', '.join(missing)}"
    if caller is None:
        return ""
    caller = f"{scope}.{caller}"
    if missing_caller := problem(caller, ()):
        return missing_caller
    function = pkgutil.resolve_name(caller)
    code = getattr(inspect.unwrap(getattr(function, "fget", function)), "__code__", None)
    is_used = code is not None and used in code.co_names
    return "" if is_used else f"{caller} does not use {used}"


def parsed(row: str) -> tuple[Any, ...]:
    """Returns place, parameters, attributes and caller of a row, None for what it lacks."""
    match = re.fullmatch(r"([\w.*]+)(?:\((.*)\))?(?:: ([\w ]+?))?(?: < ([\w.]+))?", row)
    assert match is not None, row
    return match.groups()


def _names(parameters: Iterable[inspect.Parameter]) -> str:
    """Returns their names in a row's words; an optional parameter's ends in ``=``."""
    words = []
    for each in parameters:
        many = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        name = str(each.replace(annotation=each.empty, default=each.empty))
        words.append(name if each.default is each.empty and not many else f"{name}=")
    return " ".join(words)


def _fits(parameters: Iterable[inspect.Parameter], words: Iterable[str]) -> bool:
    """Returns whether parameters are those of a row."""
    has = f"{_names(parameters)} ".lstrip()
    pattern = "".join(
        r"(?:\S+= )*" if word == "..." else rf"(?:{word})=? ".replace("*", r"\*") for word in words
    )
    passes_on = r"\*\w+= \*\*\w+= "  # a wrapper's, which forwards whatever it is called with
    return re.fullmatch(f"{passes_on}|{pattern}", has) is not None


def _refuse(why: str) -> NoReturn:
    package = "torch" if why.startswith("torch.") else "transformers"
    version = importlib.import_module(package).__version__
    requirements = importlib.metadata.requires("attnbias") or ()
    wanted = [each.partition(";")[0] for each in requirements if "'transformers'" in each]
    raise ImportError(
        f"{package}: got version {version}, where {why}; attach works with "
        f"{' and '.join(wanted)}, as pip install 'attnbias[transformers]' installs them"
    )

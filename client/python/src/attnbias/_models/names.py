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
the files of the model whose name ends so. Rows are in names.txt, by family.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import sys
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn


def _read() -> dict[str, tuple[str, ...]]:
    text = resources.files("attnbias._models").joinpath("names.txt").read_text(encoding="utf-8")
    name, sections = "", dict[str, tuple[str, ...]]()
    for row in re.sub(r"\n +", " ", text).splitlines():
        if row.startswith("["):
            name = row.strip("[]")
            sections[name] = ()
        elif row.startswith("= "):
            sections[name] += sections[row.removeprefix("= ")]
        elif row and not row.startswith("#"):
            sections[name] += (row,)
    return sections


_SECTIONS: Final = _read()


def rows_of(family: str) -> tuple[str, ...]:
    """Returns the rows that all families need, then those of one, named as in the register."""
    return (*_SECTIONS["all"], *_SECTIONS[family])


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
    """Returns the reason why a row is not met; "" if it is."""
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
        # Instances may differ in attributes, such as the table that the layers share.
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
    """Returns place, parameters, attributes and caller of a row, None for those it lacks."""
    match = re.fullmatch(r"([\w.*]+)(?:\((.*)\))?(?:: ([\w ]+?))?(?: < ([\w.]+))?", row)
    assert match is not None, row
    return match.groups()


def _names(parameters: Iterable[inspect.Parameter]) -> str:
    """Returns parameter names in a row's words; an optional parameter's ends in ``=``."""
    words = []
    for each in parameters:
        many = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        name = str(each.replace(annotation=each.empty, default=each.empty))
        words.append(name if each.default is each.empty and not many else f"{name}=")
    return " ".join(words)


def _fits(parameters: Iterable[inspect.Parameter], words: Iterable[str]) -> bool:
    has = f"{_names(parameters)} ".lstrip()
    pattern = "".join(
        r"(?:\S+= )*" if word == "..." else rf"(?:{word})=? ".replace("*", r"\*") for word in words
    )
    passes_on = r"\*\w+= \*\*\w+= "  # a wrapper's, which forwards all arguments
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

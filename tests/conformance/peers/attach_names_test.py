# SPDX-License-Identifier: Apache-2.0
"""Names of transformers and torch: all are in the table, and attach reports each missing one.

Another version of either is simulated: a name is deleted, a function has other parameters.
"""

import ast
import functools
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attach_sinusoidal_test
import pytest
import torch
import transformers
from attach_compare_test import FAMILIES, made
from attach_test import make
from attached import state
from torch import nn

import attnbias
from attnbias._models import export, names

SOURCES = Path(__file__).parents[3] / "client/python/src/attnbias"
ROOM = SOURCES / "_models"
FILES = {path.stem: path for path in (ROOM / "families").glob("[a-z]*.py")}
FILES |= {name: ROOM / f"{name}.py" for name in ("attach", "changes", "compare", "family")}
FAMILY_FILES = sorted({family for family in FAMILIES.values() if family is not None})
# Entry points of all programs that use transformers, and of peft.
PUBLIC = {"config", "model_type", "get_base_model"}
PUBLIC |= {f"transformers.Auto{name}" for name in ("Config", "Model")}
PUBLIC |= {"transformers.AutoConfig.from_pretrained", "transformers.AutoModel.from_config"}
FOREIGN = ("Any", "nn.Module", "PreTrainedModel")  # annotations of transformers' objects
MODULES = (nn.Embedding(1, 1), nn.Linear(1, 1), nn.Dropout())
STANDARD = {name for thing in (*MODULES, torch.zeros(()), {}, "") for name in dir(thing)}


@functools.cache
def own_names() -> set[str]:
    """Functions, attributes and constants of this package."""
    names = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                names.add(node.attr)
    return names


class Uses:
    """Names of transformers, and of torch's insides, in the code of a file.

    Attributes:
        places: those with their modules.
        imported: those of them without which the file cannot be imported.
        words: attributes of objects that transformers makes, and methods that are replaced.
        imports: files of this package.
    """

    def __init__(self, code: str) -> None:
        tree = ast.parse(code)
        self._constants: dict[str, str] = {}
        self._modules = {"torch": "torch", "transformers": "transformers"}
        self._objects = set[str]()
        self.places = set[str]()
        self.imported = set[str]()
        self.words = set[str]()
        self.imports = set[str]()
        for find in (self._bind, self._use):
            for node in ast.walk(tree):
                find(node)
        self.places |= self.imported
        own = own_names() | STANDARD
        self.words = {
            word
            for word in self.words
            if word not in own and "attnbias" not in word and not word.startswith("__")
        }

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            self._import(node.module, [name.name for name in node.names])
        elif isinstance(node, ast.arg) and node.annotation is not None:
            if ast.unparse(node.annotation) in FOREIGN:
                self._objects.add(node.arg)
        elif isinstance(node, ast.For) and "modules(" in ast.unparse(node.iter):
            self._objects |= {name.id for name in ast.walk(node.target) if type(name) is ast.Name}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant):
            self._constants[ast.unparse(node.target)] = str(node.value.value)

    def _import(self, module: str, names: list[str]) -> None:
        if module.startswith("attnbias._models"):
            self.imports |= {module.rpartition(".")[2], *names}
        for name in names:
            if module.startswith("transformers.") and name.startswith("modeling_"):
                self._modules[name] = f"{module}.{name}"
            elif module.startswith("transformers") or "torch.nn.attention" in module:
                self.imported.add(f"{module}.{name}")

    def _use(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            if root in self._modules and re.fullmatch(r"[\w.]+", rest):
                self._place(f"{self._modules[root]}.{rest}")
            elif self._is_foreign(node.value) or re.match(r"_[a-z]", node.attr):
                self.words.add(node.attr)
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func).rpartition(".")[2]
            place = {"getattr": 1, "set": 1, "set_method": 1, "Site": 1}.get(function)
            if place is not None and not (function == "getattr" and len(node.args) > 2):
                self._name(node.args[place : place + 1])
            if function == "set_names":
                self.words |= {keyword.arg for keyword in node.keywords if keyword.arg}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            self._name([node.slice])

    def _place(self, name: str) -> None:
        insides = name.startswith("torch.compile") or "._" in name
        if insides or not name.startswith("torch."):
            self.places.add(name)

    def _name(self, given: list[ast.expr]) -> None:
        for each in given:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                self.words.add(each.value)
            elif ast.unparse(each) in self._constants:
                self.words.add(self._constants[ast.unparse(each)])

    def _is_foreign(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Attribute):
            return value.attr in ("model", "module", "config") or self._is_foreign(value.value)
        return isinstance(value, ast.Name) and value.id in self._objects


USES = {name: Uses(path.read_text()) for name, path in FILES.items()}


def places_in(rows: tuple[str, ...]) -> set[str]:
    spelled = [one for row in rows for each in row.split(" or ") for one in names.spelled(each, [])]
    return {names.parsed(one)[0] for one in spelled}


def is_in(place: str, places: set[str]) -> bool:
    """Itself, or a part of it: a class of whose methods there are rows."""
    return any(each == place or each.startswith(f"{place}.") for each in places)


def rows_for(file: str) -> tuple[str, ...]:
    families = [file] if file in FAMILY_FILES else FAMILY_FILES
    return tuple(row for family in families for row in names.rows_of(family))


def test_each_family_has_rows() -> None:
    assert all(names.rows_of(family) for family in FAMILY_FILES)


def test_uses_finder_reports_places_and_words() -> None:
    found = Uses(
        "import torch\n"
        "from transformers.models.x import modeling_x\n"
        "from transformers.masking_utils import y\n"
        "_M: Final = 'made'\n"
        "def f(module: Any, context: AttachContext, changes: Changes) -> None:\n"
        "    for path, layer in context.modules(modeling_x.X):\n"
        "        torch._dynamo.z(layer.own, module.shape, context.model.config.n_embd, w._v)\n"
        "    torch.compiler.q(getattr(module, _M), getattr(module, 'n', 1))\n"
        "    changes.set_method(module, 'patched', f)\n"
        "    changes.set_names(module, other=f)\n"
    )
    assert found.places == {
        "transformers.models.x.modeling_x.X",
        "transformers.masking_utils.y",
        "torch._dynamo.z",
        "torch._dynamo",
        "torch.compiler.q",
        "torch.compiler",
    }
    assert found.imported == {"transformers.masking_utils.y"}
    assert found.words == {"own", "config", "n_embd", "_v", "made", "patched", "other"}


@pytest.mark.parametrize("file", USES)
def test_each_used_name_is_in_the_table(file: str) -> None:
    rows = rows_for(file)
    places = places_in(rows)
    used = USES[file]
    assert {place for place in used.places - PUBLIC if not is_in(place, places)} == set()
    assert used.words - PUBLIC - set(re.findall(r"\w+", " ".join(rows))) == set()


@pytest.mark.parametrize("family", FAMILY_FILES)
def test_each_import_is_in_the_rows_of_its_family(family: str) -> None:
    """A missing import fails in the family's file before its rows are checked."""
    files, places = {family}, places_in(names.rows_of(family))
    while more := {each for file in files for each in USES[file].imports & USES.keys()} - files:
        files |= more
    used = {place for file in files for place in USES[file].imported}
    assert {place for place in used if not is_in(place, places)} == set()


Change = Callable[[pytest.MonkeyPatch], None]


def other_function(renamed: object) -> None:
    """Has other parameters than any row of the table, and uses no name."""


def one_more(function: Any) -> Callable[..., None]:
    def other(*_: Any, **__: Any) -> None: ...

    signature = inspect.signature(function)
    more = inspect.Parameter("more", inspect.Parameter.KEYWORD_ONLY)
    given = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
    other.__signature__ = signature.replace(parameters=[*given, more])  # type: ignore[attr-defined]
    return other


def lacks(model: nn.Module, kind: type, name: str) -> bool:
    return not any(
        isinstance(each, kind) and hasattr(each, name)
        for module in model.modules()
        for each in (module, getattr(module, "config", None))
    )


def without(place: str, patch: pytest.MonkeyPatch) -> None:
    """Deletes the name where it is defined: a class may inherit it."""
    scope, _, name = place.rpartition(".")
    owner = pkgutil.resolve_name(scope)
    kinds = owner.__mro__ if isinstance(owner, type) else [owner]
    kind = next(kind for kind in kinds if name in vars(kind))
    if kind is not torch._C.TensorBase:
        patch.delattr(kind, name)
        return
    resolve = pkgutil.resolve_name  # such a class cannot be changed
    renamed = {place: f"{place}_of_old"}
    patch.setattr(pkgutil, "resolve_name", lambda asked: resolve(renamed.get(asked, asked)))


def with_function(place: str, function: Any, patch: pytest.MonkeyPatch) -> None:
    scope, _, name = place.rpartition(".")
    patch.setattr(pkgutil.resolve_name(scope), name, function)


def without_attribute(kind: Any, name: str, patch: pytest.MonkeyPatch) -> None:
    """Hides the attribute: an instance may have it from its class, or among its modules."""

    def hiding(own: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def get(this: Any, asked: str) -> Any:
            if asked == name:
                raise AttributeError(asked)
            return own(this, asked)

        return get

    for method in ("__getattribute__", "__getattr__"):
        if hasattr(kind, method):
            patch.setattr(kind, method, hiding(getattr(kind, method)))


def changes_of(row: str, model: nn.Module) -> Iterator[tuple[str, list[Change]]]:
    """Yields ways to break a row, each with the name that the error states."""
    parts = [
        names.parsed(one)
        for choice in row.split(" or ")
        for one in names.spelled(choice, list(model.modules()))
        if not names.problem(one, [])
    ]
    place, parameters, attributes, caller = parts[0]
    partial, places = functools.partial, [each[0] for each in parts]
    if attributes is None:
        yield place, [partial(without, each) for each in places]
    if parameters is not None:
        function = pkgutil.resolve_name(place)
        for other in (other_function, one_more(function)):
            yield place, [partial(with_function, each, other) for each in places]
    kind = pkgutil.resolve_name(place)
    for name in (attributes or "").split():
        if not lacks(model, kind, name):
            yield name, [partial(without_attribute, kind, name)]
    if caller is not None:
        scope = place if attributes else place.rpartition(".")[0]
        using = f"{scope}.{caller}"
        yield using, [partial(with_function, using, other_function)]


MODELS = {
    "longt5-local": functools.partial(make, "longt5-local"),
    "pegasus": functools.partial(attach_sinusoidal_test.new_model, "pegasus"),
    **{
        name: functools.partial(made, name)
        for name in ("t5", "mt5", "umt5", "longt5", "mpnet", "bloom", "mpt", "falcon", "llama")
    },
    **{
        name: functools.partial(made, name)
        for name in ("gemma3_text", "gptj", "marian", "whisper", "bert", "swin", "beit", "swinv2")
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_attach_reports_each_missing_name(client: attnbias.Client, name: str) -> None:
    model = MODELS[name]()
    family = FAMILIES[model.config.model_type]
    assert family is not None
    before = state(model)
    for row in names.rows_of(family):
        for named, changes in changes_of(row, model):
            with pytest.MonkeyPatch.context() as patch:
                for change in changes:
                    change(patch)
                with pytest.raises(ImportError) as caught:
                    attnbias.attach(model, client, max_length=16)
            package = "torch" if row.startswith("torch.") else "transformers"
            version = transformers.__version__ if package == "transformers" else torch.__version__
            said = str(caught.value)
            assert said.startswith(f"{package}: got version {version}, where "), (row, said)
            assert named.rpartition(".")[2] in said
            assert "; attach works with torch<2.16,>=2.15 and transformers<5.25,>=5.23, " in said
            assert said.endswith(" pip install 'attnbias[transformers]' installs them")
            assert state(model) == before


def test_export_skips_unsupported_attach_requests(
    client: attnbias.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "mpt", "n_layers": 1, "d_model": 48, "n_heads": 6}))
    assert all(wish.request is not None for wish in export.of_attach(config, 64, client))
    without("transformers.models.mpt.modeling_mpt.MptModel.build_mpt_alibi_tensor", monkeypatch)
    (wish,) = export.of_attach(config, 64, client)
    assert (wish.place, wish.request) == ("attach", None)
    assert "modeling_mpt.MptModel.build_mpt_alibi_tensor is missing; attach works with" in wish.why

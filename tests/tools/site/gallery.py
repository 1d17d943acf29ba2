# SPDX-License-Identifier: Apache-2.0
"""Writes the site's gallery: a page for every encoding and every known name.

Usage: python -m tests.tools.site.gallery FOLDER

Starts a server, draws its answers, and runs the lines of every page against it. A line that fails,
or that fetches a different tensor than the others, is an error.
"""

import inspect
import json
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    text_format,
)
from safetensors.numpy import save_file

import attnbias
from attnbias.v1 import encodings_pb2
from tests.support.server_process import running_server

ROOT = Path(__file__).resolve().parents[3]
ENCODINGS = {kind.field: kind for kind in attnbias.Encoding.__subclasses__()}
ADDRESS = "localhost:50051"
TENSOR_SPEC = encodings_pb2.TensorSpec.DESCRIPTOR
MROPE = "Mrope"  # the only name specific to Python
METHOD = "attnbias.v1.AttentionBiasService/GetTensor"
WIDTH = 80

PAGE = """\
# {name}

{doc}

{pictures}

{formulas}

{facts}

## Lines that fetch it

{tables}=== "Python"

{python}

=== "Go"

{go}

=== "grpcurl"

{grpcurl}

=== "Command line"

{tool}
"""
TABLES = """\
The server has [mounted](../docs/operations/tables.md) the learned tables under these names. The
numbers of the picture are random.

"""
CLIENT = "The [guide](../client/go/README.md) makes `client` and imports the packages."
INDEX = """\
# Gallery

Every encoding and every [preset](docs/encodings.md#presets) as a server computes it, with its
formula, the models that use it, and the lines that fetch it.

## Encodings

{encodings}

## Known names

{names}
"""
GO_PROGRAM = """\
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/attnbias/attnbias/client/go/attnbias"
	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

func check(tensor *attnbias.Tensor, err error) {{
	if err != nil {{
		log.Fatal(err)
	}}
	fmt.Println(tensor.Fingerprint())
}}

func main() {{
	ctx := context.Background()
	client, err := attnbias.New("")
	if err != nil {{
		log.Fatal(err)
	}}
	defer client.Close()
{}
}}
"""


class Field(NamedTuple):
    """A field of an encoding, under a client's name for it."""

    name: str
    descriptor: Any
    value: Any
    required: bool = False


class Entry:
    """An encoding or a known name, with an example request."""

    def __init__(self, name: str, example: dict[str, Any], preset: Any) -> None:
        self.name, self.preset = name, preset
        self.made_by = ENCODINGS[name].__name__ if name in ENCODINGS else name
        self.formulas = example["formula"].strip().split("\n\n")
        self.models = example.get("models", "")
        self.arguments, self.request = example["arguments"], example["request"]
        owner = preset.spec.WhichOneof("encoding") if preset else name
        self.owner = TENSOR_SPEC.fields_by_name["rotary" if name == MROPE else owner]
        self.tool_name = preset.tool_name if preset else self.owner.name
        self.made = self.python_call(f"attnbias.{self.made_by}", self.arguments)
        encoding = eval(self.made, {"attnbias": attnbias})
        self.spec = attnbias.Request(encoding, **self.request).to_spec()

    @property
    def message(self) -> Any:
        return getattr(self.spec, self.owner.name)

    @property
    def fields(self) -> list[Field]:
        """Returns the fields that the example sets; for a preset, the preset's own fields."""
        if self.preset is None:
            return [Field(field.name, field, value) for field, value in self.message.ListFields()]
        fields = []
        for each in self.preset.arguments:
            if each.name in self.arguments:
                path = each.fields[0].name if each.fields else each.name
                descriptor, value = field_at(self.message, path)
                fields.append(Field(each.name, descriptor, value, each.required))
        return fields

    def python_call(self, function: str, arguments: dict[str, Any]) -> str:
        words = [f"{name}={self.python_value(name, it)}" for name, it in arguments.items()]
        return f"{function}({', '.join(words)})"

    def python_value(self, name: str, value: Any) -> str:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            kind = self.owner.message_type.fields_by_name[name].message_type.name
            made = [self.python_call(f"attnbias.{kind}", each) for each in value]
            return f"[{', '.join(made)}]"
        return repr(value)

    def python(self) -> str:
        """Returns the program in Python."""
        words = [self.made, *(f"{name}={value!r}" for name, value in self.request.items())]
        text = f"import attnbias\n\nwith attnbias.Client({ADDRESS!r}) as client:\n"
        text += f"    tensor = client.get({', '.join(words)})\n"
        command = ["ruff", "format", f"--line-length={WIDTH}", "-"]
        return output_of(command, input=text)

    def go(self) -> str:
        """Returns the call in Go."""
        if self.preset is not None:
            fields = [f"{go_name(it.name)}: {go_optional(it)}" for it in self.fields]
            encoding = f"attnbias.{self.name}{{{go_list(fields)}}}.Encoding()"
        else:
            name, kind = go_name(self.owner.name), self.owner.message_type.name
            encoding = f"&pb.TensorSpec_{name}{{{name}: &pb.{kind}{go_message(self.message)}}}"
        parts = [f"Encoding: {encoding}"]
        if extent := self.spec.WhichOneof("extent"):
            name, message = go_name(extent), getattr(self.spec, extent)
            literal = f"&pb.{message.DESCRIPTOR.name}{go_message(message)}"
            parts.append(f"Extent: &pb.TensorSpec_{name}{{{name}: {literal}}}")
        return f"tensor, err := client.Get(ctx, &pb.TensorSpec{{{go_list(parts)}}})"

    def grpcurl(self) -> str:
        """Returns the command that fetches the tensor with grpcurl."""
        spec = json_format.MessageToDict(self.spec, preserving_proto_field_name=True)
        data = shlex.quote(json_text({"spec": spec}))
        return f"grpcurl -plaintext -d {data} \\\n  {ADDRESS} {METHOD}\n"

    def tool(self) -> str:
        """Returns the command that fetches the tensor with the tool."""
        words = ["attnbias", "get", self.tool_name]
        for field in self.fields:
            words += tool_words(field.name, field.descriptor, field.value)
        for name, value in self.request.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(f"--{name.replace('_', '-')} {text}")
        lines = [""]
        for word in words:
            if lines[-1] and len(lines[-1]) + len(word) > WIDTH - len(" \\"):
                lines.append(" ")
            lines[-1] += f" {word}" if lines[-1] else word
        return " \\\n".join(lines) + "\n"


def output_of(command: list[str], **options: Any) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{result.stderr}")
    return result.stdout


def field_at(message: Any, path: str) -> tuple[Any, Any]:
    """Returns the descriptor and the value of a path such as "axes.0.length"."""
    *owners, name = path.split(".")
    for owner in owners:
        message = message[int(owner)] if owner.isdigit() else getattr(message, owner)
    return message.DESCRIPTOR.fields_by_name[name], getattr(message, name)


def json_text(value: Any, margin: str = "") -> str:
    """Writes JSON; keeps values on one line if they fit."""
    text = json.dumps(value)
    inner = margin + "  "
    if len(margin + text) < WIDTH:
        return text
    if isinstance(value, list):
        items = [inner + json_text(it, inner) for it in value]
        return "[\n" + ",\n".join(items) + f"\n{margin}]"
    if not isinstance(value, dict):
        return text
    items = [f"{inner}{json.dumps(name)}: {json_text(it, inner)}" for name, it in value.items()]
    return "{\n" + ",\n".join(items) + f"\n{margin}}}"


def tool_words(name: str, field: Any, value: Any) -> list[str]:
    """Returns a field as the tool's argument NAME=VALUE."""
    if field.message_type is not None and field.message_type.name == "TableRef":
        return [f"{name}=name:{value.name}"]
    if field.message_type is not None and field.is_repeated:
        numbered = [tool_message(f"{name}.{index}", each) for index, each in enumerate(value)]
        return [word for words in numbered for word in words]
    if field.message_type is not None:
        return tool_message(name, value)
    if field.is_repeated:
        return [f"{name}={','.join(map(tool_scalar, value))}"]
    if field.enum_type is not None:
        prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        word = field.enum_type.values_by_number[value].name
        return [f"{name}={word.removeprefix(prefix).lower()}"]
    return [f"{name}={tool_scalar(value)}"]


def tool_scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.17g}"


def tool_message(name: str, message: Any) -> list[str]:
    words = [
        word
        for field, value in message.ListFields()
        for word in tool_words(f"{name}.{field.name}", field, value)
    ]
    return words or [f"{name}={{}}"]


def go_name(name: str) -> str:
    return name.title().replace("_", "")


def go_list(parts: list[str]) -> str:
    """Joins parts of a literal, on several lines if one line is too short."""
    text = ", ".join(parts)
    return text if len(text) < WIDTH - 20 else "\n" + "".join(f"{part},\n" for part in parts)


def go_message(message: Any) -> str:
    fields = []
    for field, value in message.ListFields():
        name, text = go_name(field.name), go_value(field, value)
        oneof = field.containing_oneof
        if oneof is not None and len(oneof.fields) > 1:
            made = f"&pb.{message.DESCRIPTOR.name}_{name}{{{name}: {text}}}"
            fields.append(f"{go_name(oneof.name)}: {made}")
        elif field.has_presence and field.message_type is None and field.enum_type is None:
            fields.append(f"{name}: {go_pointer(field, text)}")
        else:
            fields.append(f"{name}: {text}")
    return f"{{{go_list(fields)}}}"


def go_optional(field: Field) -> str:
    """Returns the value of a preset's argument."""
    text, descriptor = go_value(field.descriptor, field.value), field.descriptor
    is_scalar = descriptor.message_type is None and descriptor.enum_type is None
    if is_scalar and descriptor.has_presence and not field.required:
        return go_pointer(descriptor, text)
    return text


def go_type(field: Any) -> str:
    kinds = {
        field.CPPTYPE_BOOL: "bool",
        field.CPPTYPE_DOUBLE: "float64",
        field.CPPTYPE_INT32: "int32",
        field.CPPTYPE_INT64: "int64",
    }
    return kinds[field.cpp_type]


def go_pointer(field: Any, text: str) -> str:
    is_integer = go_type(field).startswith("int")
    return f"new({go_type(field)}({text}))" if is_integer else f"new({text})"


def go_value(field: Any, value: Any) -> str:
    """Returns a field's value as a literal."""
    if field.message_type is not None:
        kind = field.message_type.name
        if field.is_repeated:
            return f"[]*pb.{kind}{{{go_list([go_message(each) for each in value])}}}"
        return f"&pb.{kind}{go_message(value)}"
    if field.is_repeated:
        return f"[]{go_type(field)}{{{', '.join(map(go_scalar, value))}}}"
    if field.enum_type is not None:
        name = field.enum_type.values_by_number[value].name
        return f"pb.{field.enum_type.name}_{name}"
    return json.dumps(value) if isinstance(value, str) else go_scalar(value)


def go_scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def read_presets() -> dict[str, Any]:
    """Maps names to the presets in presets.textproto."""
    with tempfile.NamedTemporaryFile() as file:
        command = ["protoc", "-I.", f"--descriptor_set_out={file.name}", "presets/presets.proto"]
        subprocess.run(command, cwd=ROOT / "proto", check=True)
        [proto] = descriptor_pb2.FileDescriptorSet.FromString(Path(file.name).read_bytes()).file
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(proto.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("attnbias.presets.Presets"))
    text = (ROOT / "proto/presets/presets.textproto").read_text(encoding="utf-8")
    read: Any = text_format.Parse(text, kind())
    return {preset.name: preset for preset in read.presets}


def read_entries(data: dict[str, Any]) -> tuple[list[Entry], list[Entry]]:
    """Returns the encodings and the known names; an entry without an example is an error."""
    presets = read_presets()
    encodings = [field.name for field in TENSOR_SPEC.oneofs_by_name["encoding"].fields]
    names = [*presets, MROPE]
    for kind, known in (("encodings", encodings), ("names", names)):
        if differing := set(known) ^ set(data[kind]):
            sys.exit(f"gallery.toml: {kind} missing or unknown: {', '.join(sorted(differing))}")
    return (
        [Entry(name, data["encodings"][name], None) for name in encodings],
        [Entry(name, data["names"][name], presets.get(name)) for name in names],
    )


def make_tables(shapes: dict[str, list[int]], path: Path) -> None:
    """Writes tables whose rows vary gradually, or network weights."""
    random = np.random.default_rng(0)
    tables = {}
    for name, shape in shapes.items():
        numbers = random.standard_normal(shape, dtype=np.float32)
        tables[name] = numbers if "." in name else np.cumsum(numbers, axis=0)
    save_file(tables, path)


def draw(tensor: Any, path: Path) -> None:
    """Draws a tensor for light and dark pages."""
    for colours, style in (("light", "default"), ("dark", "dark_background")):
        with plt.style.context(style), plt.rc_context({"svg.hashsalt": path.name}):
            figure = attnbias.plot(tensor, heads=None)[0].figure
            figure.savefig(f"{path}-{colours}.svg", transparent=True, metadata={"Date": None})
            plt.close(figure)


def check(entry: Entry, address: str, client: attnbias.Client, go: str) -> Any:
    """Runs an entry's lines, and returns the tensor."""
    names: dict[str, Any] = {}
    exec(entry.python().replace(ADDRESS, address), names)
    encoding = eval(entry.made, {"attnbias": attnbias})
    grpcurl = output_of(["bash", "-ec", entry.grpcurl().replace(ADDRESS, address)])
    tool = f"{entry.tool()} --server {address} --json".replace("\n --server", " --server")
    fingerprints = {
        "Python": client.describe(encoding, **entry.request).fingerprint,
        "Go": go,
        "grpcurl": json.loads(grpcurl)["header"]["fingerprint"],
        "the tool": json.loads(output_of(["bash", "-ec", tool]))["fingerprint"],
    }
    if len(set(fingerprints.values())) > 1:
        sys.exit(f"{entry.name}: the lines fetch different tensors: {fingerprints}")
    return names["tensor"]


def run_go(entries: list[Entry], address: str) -> tuple[list[str], list[str]]:
    """Runs the lines in Go; returns the formatted lines and the fingerprints that they print."""
    mark = "// line"
    blocks = [f"{{\n{mark}\n{entry.go()}\n{mark}\ncheck(tensor, err)\n}}" for entry in entries]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "main.go")
        root = output_of(["go", "env", "GOROOT"]).strip()
        program.write_text(GO_PROGRAM.format("\n".join(blocks)), encoding="utf-8")
        output_of([f"{root}/bin/gofmt", "-w", str(program)])
        text = program.read_text(encoding="utf-8")
        command = ["env", f"ATTNBIAS_SERVER={address}", "go", "run", str(program)]
        fingerprints = output_of(command, cwd=ROOT / "client/go").split()
    lines = re.findall(rf"{mark}\n(.*?)\t\t{mark}\n", text, re.DOTALL)
    return [textwrap.dedent(each) for each in lines], fingerprints


def block(language: str, text: str) -> str:
    return textwrap.indent(f"```{language}\n{text}```", "    ")


def doc_of(entry: Entry) -> str:
    """Returns the docstring without its arguments."""
    text = inspect.getdoc(getattr(attnbias, entry.made_by)) or ""
    return re.split(r"\n\n(?:Attributes|Args):\n", text)[0]


def pictures(name: str, folder: str = "") -> str:
    return "".join(
        f"![{name} as a picture]({folder}{name}-{colours}.svg#only-{colours})"
        for colours in ("light", "dark")
    )


def facts(entry: Entry, sections: dict[str, str]) -> str:
    """Returns the models that use an entry, and the entry's names in the contract and in
    clients."""
    known = re.search(r"\bFound in (.+?)\.(?: |$)", " ".join(doc_of(entry).split()))
    models = known[1] if known else entry.models or "those of its paper"
    return f"""\
- Models: {models}
- Contract: [`{entry.owner.name}`](../docs/{sections[entry.owner.name]})
- Python: [`attnbias.{entry.made_by}`][attnbias.{entry.made_by}]
- Command line: `{entry.tool_name}`"""


def page(entry: Entry, go: str, sections: dict[str, str]) -> str:
    has_tables = '"name":' in json_text(json_format.MessageToDict(entry.spec))
    return PAGE.format(
        name=entry.name,
        doc=doc_of(entry),
        pictures=pictures(entry.name),
        formulas="\n\n".join(f"```math\n{formula}\n```" for formula in entry.formulas),
        facts=facts(entry, sections),
        tables=TABLES if has_tables else "",
        python=block("python", entry.python()),
        go=block("go", go) + f"\n\n    {CLIENT}",
        grpcurl=block("sh", entry.grpcurl()),
        tool=block("sh", entry.tool()),
    )


def cards(entries: list[Entry]) -> str:
    """Returns a picture and a title for each entry."""
    items = []
    for entry in entries:
        title = doc_of(entry).partition("\n")[0]
        link = f"gallery/{entry.name}.md"
        picture = f"[{pictures(entry.name, 'gallery/')}]({link})"
        items.append(f"-   {picture}\n\n    [{entry.name}]({link}): {title}\n")
    return '<div class="grid cards" markdown>\n\n' + "\n".join(items) + "\n</div>"


def sections_of_encodings() -> dict[str, str]:
    """Maps encodings to the sections that docs/encodings.md links to."""
    text = (ROOT / "docs/encodings.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| \[`(\w+)`\]\(([^)]+)\)", text, re.MULTILINE))


def main() -> None:
    pages = Path(sys.argv[1])
    folder = pages / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    encodings, names = read_entries(data)
    entries, sections = encodings + names, sections_of_encodings()
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "tables.safetensors")
        make_tables(data["tables"], file)
        flags = [f"--table={name}={file}:{name}" for name in data["tables"]]
        with running_server(*flags) as address, attnbias.Client(address) as client:
            go_lines, fingerprints = run_go(entries, address)
            for entry, go, fingerprint in zip(entries, go_lines, fingerprints, strict=True):
                tensor = check(entry, address, client, fingerprint)
                draw(tensor, folder / entry.name)
                text = page(entry, go, sections)
                (folder / f"{entry.name}.md").write_text(text, encoding="utf-8")
    index = INDEX.format(encodings=cards(encodings), names=cards(names))
    (pages / "gallery.md").write_text(index, encoding="utf-8")


if __name__ == "__main__":
    main()

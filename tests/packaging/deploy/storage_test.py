# SPDX-License-Identifier: Apache-2.0
"""Tables from object storage: the chart's containers run rclone against a real S3 server, and the
server mounts what they copy."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest
from safetensors.numpy import save_file

import attnbias
from tests.packaging.deploy.manifests import ROOT, Resource, files_of, pod_of, rendered, server_of
from tests.support.server import eventually, free_port, listens
from tests.support.server_process import PATIENCE, ServerProcess

PAGE = ROOT / "docs" / "operations" / "tables.md"
MOUNTED = "/var/lib/attnbias/remote"
VALUES = {
    "tables": {"remote": "s3:models/tables"},
    "checkpoints": [{"name": "t5", "remote": "s3:models/t5 small"}],
    "rclone": {"configSecret": "rclone", "periodSeconds": 1},
}
HEADS = 2
TABLE = np.arange(32 * HEADS, dtype="f4").reshape(32, HEADS)
T5 = attnbias.T5(num_heads=HEADS, num_buckets=32, bidirectional=True, table="t5:weight")


class Storage:
    """Runs SeaweedFS, which keeps its files while it is stopped."""

    def __init__(self, folder: pathlib.Path) -> None:
        data, identities = folder / "data", folder / "identities.json"
        data.mkdir()
        keys = {"accessKey": "reader", "secretKey": "of-tables"}
        actions = ["Read", "Write", "List", "Tagging", "Admin"]
        identity = {"name": "reader", "credentials": [keys], "actions": actions}
        identities.write_text(json.dumps({"identities": [identity]}))
        ports = {
            f"{part}.{port}": free_port()
            for part in ("master", "volume", "filer", "s3")
            for port in ("port", "port.grpc")
        }
        self._command = [
            "weed",
            "server",
            f"-dir={data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            *(f"-{name}={port}" for name, port in ports.items()),
            "-filer",
            "-s3",
            f"-s3.config={identities}",
            "-volume.max=20",
            "-master.volumeSizeLimitMB=64",
        ]
        self._port = ports["s3.port"]
        self.config = folder / "rclone.conf"
        self.config.write_text(
            "[s3]\ntype = s3\nprovider = SeaweedFS\n"
            "access_key_id = reader\nsecret_access_key = of-tables\n"
            f"endpoint = http://127.0.0.1:{self._port}\n"
        )
        self._log = (folder / "log").open("w")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        eventually(lambda: listens(self._port), "the S3 server listens")
        eventually(lambda: self.rclone("mkdir", "s3:models") == 0, "it has a bucket")
        eventually(lambda: self.rclone("touch", "s3:models/ready") == 0, "it accepts files")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def rclone(self, *words: str) -> int:
        return subprocess.run(["rclone", f"--config={self.config}", *words], check=False).returncode

    def put(self, source: pathlib.Path, path: str) -> None:
        assert self.rclone("copyto", str(source), f"s3:models/{path}") == 0

    def put_table(self, path: str, table: np.ndarray, scratch: pathlib.Path) -> None:
        file = scratch / "upload.safetensors"
        save_file({"weight": table}, file)
        self.put(file, path)

    def delete(self, path: str) -> None:
        assert self.rclone("delete", f"s3:models/{path}") == 0


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = Storage(tmp_path_factory.mktemp("storage"))
    storage.start()
    yield storage
    storage.stop()


class Pod:
    """A pod from the chart, with its volumes in `folder`."""

    def __init__(self, folder: pathlib.Path, storage: Storage) -> None:
        resources = rendered(VALUES)
        self.copies = folder / "remote"
        self.copies.mkdir()
        self._config = folder / "attnbias.toml"
        self._config.write_text(self._moved(files_of(resources)["attnbias.toml"]))
        self._storage = storage
        [self._fetch] = pod_of(resources)["initContainers"]
        assert server_of(resources)["name"] == "attnbias"
        [_, self._refresh] = pod_of(resources)["containers"]

    def _moved(self, text: str) -> str:
        return text.replace(MOUNTED, str(self.copies))

    def _run(self, container: Resource, **limits: str) -> "subprocess.Popen[bytes]":
        """Runs a container's command."""
        variables = {one["name"]: one["value"] for one in container["env"]}
        assert variables["RCLONE_CONFIG"] == "/etc/rclone/rclone.conf"
        variables["RCLONE_CONFIG"] = str(self._storage.config)
        return subprocess.Popen(
            [*container["command"], *map(self._moved, container["args"])],
            env=os.environ | variables | limits,
            start_new_session=True,
        )

    def replace(self, old: str, new: str) -> None:
        """Replaces a remote that is being fetched."""
        arguments = self._fetch["args"]
        arguments[arguments.index(old)] = new

    def fetch(self) -> int:
        with self._run(self._fetch) as process:
            return process.wait(PATIENCE)

    @contextlib.contextmanager
    def refreshing(self, **limits: str) -> Iterator["subprocess.Popen[bytes]"]:
        with self._run(self._refresh, **limits) as process:
            try:
                yield process
            finally:
                # Stopping a container also ends all its processes.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def server(self) -> ServerProcess:
        return ServerProcess(f"--config={self._config}", "--tables-poll=100ms")


@pytest.fixture
def pod(storage: Storage, tmp_path: pathlib.Path) -> Pod:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text('{"model_type": "t5", "num_heads": 2}')
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    tables = {f"{side}.{bias}": TABLE for side in ("encoder", "decoder")}
    save_file(tables, checkpoint / "model.safetensors")
    (checkpoint / "pytorch_model.bin").write_bytes(b"\0")
    (checkpoint / "onnx").mkdir()
    (checkpoint / "onnx" / "config.json").write_text("{}")
    storage.delete("")
    storage.put(checkpoint, "t5 small")
    storage.put_table("tables/t5.safetensors", TABLE, tmp_path)
    return Pod(tmp_path, storage)


def number(client: attnbias.Client) -> float:
    """Returns the first number in the server's current table."""
    return float(client.get(T5, query_length=1, key_length=1).dense()[0, 0, 0])


def test_changes_in_s3_are_mounted(pod: Pod, storage: Storage, tmp_path: pathlib.Path) -> None:
    assert pod.fetch() == 0
    assert sorted(str(path.relative_to(pod.copies)) for path in pod.copies.rglob("*.*")) == [
        "checkpoints/t5/config.json",
        "checkpoints/t5/model.safetensors",
        "tables/t5.safetensors",
    ]
    with pod.server() as server, attnbias.Client(server.address) as client:

        def names() -> set[str]:
            return {table.name for table in client.list_tables()}

        first = names()
        assert "t5:weight" in first
        assert {name for name in first if name.startswith("t5/")}
        assert number(client) == 0
        with pod.refreshing() as refresh:
            storage.put_table("tables/t5.safetensors", TABLE + 1, tmp_path)
            eventually(lambda: number(client) == 1, "the new numbers")

            storage.put_table("tables/more.safetensors", TABLE, tmp_path)
            eventually(lambda: names() == first | {"more:weight"}, "another table")
            storage.delete("tables/more.safetensors")
            eventually(lambda: names() == first, "the table is deleted")
            assert refresh.poll() is None
            refresh.terminate()
            assert refresh.wait(5) == 0
        assert pod.fetch() == 0


def test_keeps_tables_while_the_storage_is_down(
    pod: Pod, storage: Storage, tmp_path: pathlib.Path
) -> None:
    assert pod.fetch() == 0
    with pod.server() as server, attnbias.Client(server.address) as client:
        with pod.refreshing() as refresh:
            storage.stop()
            assert pod.fetch() != 0
            assert number(client) == 0
            assert refresh.poll() is None
            storage.start()
            storage.put_table("tables/t5.safetensors", TABLE + 2, tmp_path)
            eventually(lambda: number(client) == 2, "the new numbers")
        assert " error " not in server.log().lower()


@pytest.mark.parametrize("remote", ["s3:models/tabels", "s3:models/other", "s3:models"])
def test_remote_without_tables_keeps_its_copy(
    pod: Pod, storage: Storage, capfd: pytest.CaptureFixture[str], remote: str
) -> None:
    """S3 reports a misspelled folder as an empty one."""
    assert storage.rclone("touch", "s3:models/other/notes.txt") == 0
    assert pod.fetch() == 0
    before = sorted(pod.copies.rglob("*"))
    pod.replace("s3:models/tables", remote)
    assert pod.fetch() == 1
    assert sorted(pod.copies.rglob("*")) == before
    assert (
        f"{remote}: got no .json or .safetensors files, want at least one" in capfd.readouterr().err
    )


def test_ignores_partial_files_of_an_interrupted_copy(
    pod: Pod, storage: Storage, tmp_path: pathlib.Path
) -> None:
    assert pod.fetch() == 0
    large = np.ones((1 << 18, HEADS), "f4")
    tables = pod.copies / "tables"

    def partial() -> list[pathlib.Path]:
        return list(tables.glob("*.partial"))

    with pod.server() as server, attnbias.Client(server.address) as client:
        with pod.refreshing(RCLONE_BWLIMIT="100k"):
            storage.put_table("tables/large.safetensors", large, tmp_path)
            eventually(lambda: bool(partial()), "a copy under way")
            assert number(client) == 0
        assert partial()
        storage.put_table("tables/large.safetensors", large + 1, tmp_path)
        with pod.refreshing():
            eventually(
                lambda: "large:weight" in {table.name for table in client.list_tables()}, "the rest"
            )
            eventually(lambda: not partial(), "the rest is deleted")
        assert "keeping the previous ones" not in server.log()


def test_failed_remote_keeps_its_copy_and_others_update(
    storage: Storage, pod: Pod, tmp_path: pathlib.Path
) -> None:
    assert pod.fetch() == 0
    before = sorted(pod.copies.rglob("*"))
    storage.put_table("none/t5.safetensors", TABLE, tmp_path)
    pod.replace("s3:models/tables", "s3:nowhere/tables")
    pod.replace("s3:models/t5 small", "s3:models/none")
    assert pod.fetch() != 0
    gone = [path for path in before if path.parent.name == "t5"]
    copied = pod.copies / "checkpoints" / "t5" / "t5.safetensors"
    assert sorted(pod.copies.rglob("*")) == sorted({*before, copied}.difference(gone))


def test_documented_copy_command_matches_chart() -> None:
    [fetch] = pod_of(rendered(VALUES))["initContainers"]
    for command in ("sync", "lsf"):
        [wanted] = re.findall(rf'rclone ({command} .*) "\$1"', fetch["command"][2])
        shown = re.findall(rf"rclone ({command} .*?) s3:models/tables", PAGE.read_text())
        assert [shlex.split(one) for one in shown] == 2 * [shlex.split(wanted)]
    assert re.findall(r"\S+/rclone:\S+", PAGE.read_text()) == 2 * [fetch["image"]]

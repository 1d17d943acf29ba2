# SPDX-License-Identifier: Apache-2.0
"""Properties of the server's wheel that can be checked without building the server.

Two programs that exist on every machine stand in for the package's own.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import yaml
from packaging.metadata import Metadata

ROOT = pathlib.Path(__file__).resolve().parents[3]
STAND_INS = {"attnbias-server": "echo", "attnbias": "cat"}


def output(*command: object, cwd: pathlib.Path) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns the package from the tree, without programs."""
    root = tmp_path_factory.mktemp("root")
    shutil.copy(ROOT / "CMakeLists.txt", root)
    return pathlib.Path(shutil.copytree(ROOT / "deploy" / "wheel", root / "deploy" / "wheel"))


@pytest.fixture(scope="module")
def wheel(checkout: pathlib.Path) -> pathlib.Path:
    stage = pathlib.Path(shutil.copytree(checkout, checkout.parents[1] / "build" / "stage"))
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, stage)
    (stage / "licenses" / "libone").mkdir(parents=True)
    (stage / "licenses" / "libone" / "copyright").write_text("theirs")
    programs = stage / "src" / "attnbias_server" / "bin"
    programs.mkdir()
    for name, stand_in in STAND_INS.items():
        found = shutil.which(stand_in)
        assert found
        shutil.copy(found, programs / name)
    output("hatchling", "build", "-t", "wheel", "-d", stage / "dist", cwd=stage)
    (built,) = (stage / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def site(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    output(*pip, "--target", site, wheel, cwd=site)
    return site


def run(site: pathlib.Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [site / "bin" / name, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(site)},
    )


def client_metadata() -> dict[str, object]:
    told = output("hatchling", "metadata", cwd=ROOT / "client" / "python")
    return dict(json.loads(told))


def read_metadata(wheel: pathlib.Path) -> Metadata:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=True)


def test_all_packages_have_one_version(wheel: pathlib.Path) -> None:
    cmake = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"project\(attnbias VERSION (\S+)", cmake)
    assert found
    version = found[1]
    client = client_metadata()
    assert client["version"] == version
    assert client["optional-dependencies"]["server"] == [f"attnbias-server=={version}"]
    assert str(read_metadata(wheel).version) == version
    chart = yaml.safe_load((ROOT / "deploy/helm/attnbias/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_notice_lists_licenses_of_wheel(wheel: pathlib.Path) -> None:
    licenses = str(read_metadata(wheel).license_expression).split(" AND ")
    notice = (ROOT / "NOTICE").read_text()
    assert [one for one in licenses if not re.search(rf"^{one}$|^{one} \(", notice, re.M)] == []


def test_both_packages_support_the_same_pythons(wheel: pathlib.Path) -> None:
    assert str(read_metadata(wheel).requires_python) == client_metadata()["requires-python"]


def test_wheel_tag_is_one_platform_any_python(wheel: pathlib.Path) -> None:
    assert wheel.name.endswith(f"-py3-none-linux_{os.uname().machine}.whl")


def test_wheel_has_license_of_every_bundled_library(wheel: pathlib.Path) -> None:
    assert set(read_metadata(wheel).license_files or ()) == {
        "LICENSE",
        "NOTICE",
        "licenses/libone/copyright",
    }


def test_arguments_are_passed_unchanged(site: pathlib.Path) -> None:
    said = run(site, "attnbias-server", "two words", "", "*", "--x=ü").stdout
    assert said == "two words  * --x=ü\n"


def ignored_signals(status: str) -> str:
    found = re.search(r"^SigIgn:\s+([0-9a-f]+)$", status, re.MULTILINE)
    assert found
    return found[1]


def test_script_execs_the_program(site: pathlib.Path) -> None:
    """The script's process becomes the program and ignores no additional signals."""
    said = run(site, "attnbias", "/proc/self/comm", "/proc/self/status").stdout
    assert said.startswith("attnbias\n")
    # The parent process may ignore some, as a shell's background jobs do.
    other = subprocess.run(["/bin/cat", "/proc/self/status"], check=True, stdout=subprocess.PIPE)
    assert ignored_signals(said) == ignored_signals(other.stdout.decode())


def test_client_commands_run_the_python_client(site: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If the Python client is not installed, the program names the missing package."""
    without = run(site, "attnbias", "cache", "/etc/hostname")
    assert without.stdout == pathlib.Path("/etc/hostname").read_text()
    both = pathlib.Path(shutil.copytree(site, tmp_path / "site"))
    (both / "attnbias").mkdir()
    (both / "attnbias" / "__main__.py").write_text(
        "import sys\ndef main(prog): print(prog, *sys.argv[1:]); return 3\n"
    )
    for command in ("cache", "export"):
        done = run(both, "attnbias", command, "--x")
        assert (done.stdout, done.returncode) == (f"attnbias {command} --x\n", 3)
    assert run(both, "attnbias", "/etc/hostname", "cache").stdout == without.stdout


def test_exit_code_is_passed_through(site: pathlib.Path) -> None:
    assert run(site, "attnbias", "/no/such/file").returncode == 1


def test_programs_folder_is_exported(site: pathlib.Path) -> None:
    ask = "import attnbias_server; print(*attnbias_server.PROGRAMS.iterdir())"
    said = subprocess.run(
        [sys.executable, "-c", ask],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(site)},
    ).stdout.split()
    assert {pathlib.Path(path).name for path in said} == set(STAND_INS)


def test_error_names_program_for_other_machine(site: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = pathlib.Path(shutil.copytree(site, tmp_path / "site"))
    (other / "attnbias_server" / "bin" / "attnbias").write_bytes(b"\x7fELF of some other machine")
    done = run(other, "attnbias", "--help")
    assert done.returncode == 1
    machine = os.uname().machine
    program = other / "attnbias_server" / "bin" / "attnbias"
    assert done.stderr == (
        f"attnbias: {program} cannot run here: Exec format error;"
        f" this package is built for linux_{machine}, but this machine is {machine}\n"
    )


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_build_without_programs_fails(
    checkout: pathlib.Path, tmp_path: pathlib.Path, target: str
) -> None:
    done = subprocess.run(
        ["hatchling", "build", "-t", target, "-d", tmp_path],
        check=False,
        capture_output=True,
        text=True,
        cwd=checkout,
    )
    assert done.returncode != 0
    assert "published only as wheels, for Linux on x86_64 and aarch64" in done.stderr
    assert not list(tmp_path.iterdir())

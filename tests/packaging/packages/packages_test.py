# SPDX-License-Identifier: Apache-2.0
"""The packages in build/packages, on machines with their release that run systemd and little else.

Packages for another architecture run under qemu, which need_arm64 in setup.sh enables.
"""

import contextlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.packaging.container.hardening import lacks

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILT = ROOT / "build" / "packages"
EXAMPLE = ROOT / "client" / "cpp" / "examples" / "fetch.cc"
CONSUMER = ROOT / "tests" / "packaging" / "packages" / "consumer"
# Debian's names for a release and an architecture.
Place = tuple[str, str]
PLACES: list[Place] = sorted(
    {(path.parent.name, path.stem.rpartition("_")[2]) for path in BUILT.glob("*/*.deb")}
)
# Packages that the tests need in addition to the dependencies of the tested packages.
TOOLS = ("systemd-sysv", "g++", "cmake", "make", "pkg-config")
APT_GET = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y")
UNIT = "attnbias-server.service"
SERVER = "unix:/run/attnbias/attnbias.sock"
ALIBI = ("get", "alibi", "num_heads=8", "--query-length", "64", "--key-length", "64", "--out")
# The current exposure that systemd computes for the unit, in tenths.
MOST_EXPOSED = 16
SECONDS = 60
# Folders whose contents change on their own.
PASSING = (
    *("/dev", "/proc", "/sys", "/run", "/tmp"),
    *("/var/cache", "/var/log", "/var/lib/dpkg", "/var/lib/systemd/timers"),
)
ENVIRONMENT = ("env", "--ignore-environment", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C")


def output(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def built(place: Place) -> list[pathlib.Path]:
    suite, architecture = place
    return sorted((BUILT / suite).glob(f"*_{architecture}.deb"))


def make_machine(folder: pathlib.Path, place: Place) -> None:
    """Makes a machine with the packages' dependencies, but not the packages."""

    def call(*words: object) -> str:
        script = ROOT / "tests" / "tools" / "bare_machine.sh"
        return output("bash", "-euc", 'source "$0"; "$@"', script, *words)

    def inside(*words: object) -> str:
        return call("in_machine", folder, "/", BUILT, *words)

    call("make_machine", folder, *place)
    inside(*APT_GET, "update")
    inside(*APT_GET, "install", "--no-install-recommends", *TOOLS)
    planned = inside(*APT_GET, "install", "-s", "--no-install-recommends", *built(place))
    names = re.findall(r"^Inst (\S+)", planned, re.MULTILINE)
    ours = {path.name.split("_")[0] for path in built(place)}
    others = [name for name in names if name not in ours]
    assert len(others) == len(names) - len(ours)
    inside(*APT_GET, "install", "--no-install-recommends", *others)


def tool(*arguments: str) -> list[str]:
    return ["/usr/bin/attnbias", "--server", SERVER, *arguments]


class Machine:
    """A running machine, whose processes have their own namespaces and no network."""

    def __init__(self, folder: pathlib.Path, place: Place, first_process: int) -> None:
        self.folder = folder
        self.place = place
        self._enter = ["nsenter", "--all", "--root", "--wd", f"--target={first_process}"]

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        words = [str(word) for word in (*self._enter, *ENVIRONMENT, *command)]
        return subprocess.run(words, check=False, capture_output=True, text=True)

    def output(self, *command: object) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def shell(self, script: str, *arguments: object) -> str:
        return self.output("bash", "-euc", script, "bash", *arguments)

    def state(self) -> set[str]:
        """Returns every file, and every line of the user and group files."""
        passing = " -o ".join(f"-path {path}" for path in PASSING)
        found = self.shell(rf"find / -xdev \( {passing} \) -prune -o -print")
        who = self.shell("cat /etc/passwd /etc/group /etc/shadow /etc/gshadow")
        return {*found.splitlines(), *who.splitlines()}


def first_process(container: int) -> int:
    """Returns the process ID of systemd, once nspawn has started it."""
    children = pathlib.Path(f"/proc/{container}/task/{container}/children")
    for _ in range(10 * SECONDS):
        for child in children.read_text().split():
            if pathlib.Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                return int(child)
        time.sleep(0.1)
    raise AssertionError(f"no systemd within {SECONDS} s")


def wait_for_boot(machine: Machine) -> None:
    state = ""
    for _ in range(10 * SECONDS):
        state = machine.run("systemctl", "is-system-running").stdout.strip()
        # Some units of a complete machine fail in a container.
        if state in {"running", "degraded"}:
            return
        time.sleep(0.1)
    raise AssertionError(f"systemd is {state or 'silent'} after {SECONDS} s")


@contextlib.contextmanager
def booted(folder: pathlib.Path, place: Place) -> Iterator[Machine]:
    nspawn = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network"]
    nspawn += ["--console=read-only", "--boot", f"--directory={folder}"]
    nspawn += [f"--bind-ro={path}" for path in (BUILT, EXAMPLE.parent, CONSUMER)]
    # systemd in the container needs this, whichever control groups this machine has.
    environment = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    with subprocess.Popen(nspawn, env=environment, stdin=subprocess.DEVNULL) as container:
        try:
            machine = Machine(folder, place, first_process(container.pid))
            wait_for_boot(machine)
            yield machine
            machine.run("systemctl", "poweroff")
            assert container.wait(SECONDS) == 0
        finally:
            container.kill()


@pytest.fixture(scope="module", params=PLACES, ids="-".join)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    # Not in a folder from pytest, which later removes those with their contents.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="attnbias-packages-", dir="/var/tmp"))
    try:
        make_machine(folder, request.param)
        with booted(folder, request.param) as machine:
            yield machine
    finally:
        output("rm", "-rf", "--one-file-system", folder)


@pytest.fixture(scope="module")
def before(machine: Machine) -> set[str]:
    return machine.state()


@pytest.fixture(scope="module")
def installed(machine: Machine, before: set[str]) -> Machine:
    machine.output(*APT_GET, "install", "--no-install-recommends", *built(machine.place))
    return machine


@pytest.fixture
def served(installed: Machine) -> Machine:
    """A machine whose systemd runs the server."""
    if installed.place == ("trixie", "arm64") and platform.machine() != "aarch64":
        pytest.skip("Debian 12's qemu lacks the calls by which Debian 13's systemd starts a unit")
    return installed


def test_the_server_runs_as_its_user(served: Machine) -> None:
    assert served.output("systemctl", "is-active", UNIT) == "active\n"
    assert served.output("systemctl", "is-enabled", UNIT) == "enabled\n"
    process = served.output("systemctl", "show", "--value", "--property=MainPID", UNIT).strip()
    assert served.output("stat", "-c", "%U %G", f"/proc/{process}") == "attnbias attnbias\n"


def test_only_group_members_reach_the_socket(served: Machine) -> None:
    nobody = ["setpriv", "--reuid=nobody", "--clear-groups"]
    health = tool("health")
    assert served.output(*nobody, "--regid=attnbias", *health) == "SERVING\n"
    refused = served.run(*nobody, "--regid=nogroup", *tool("--timeout=1", "health"))
    assert refused.returncode == 1


def test_default_install_listens_on_loopback_only(served: Machine) -> None:
    """Checks the default flags."""
    listening = served.output("cat", "/proc/net/tcp", "/proc/net/tcp6")
    addresses = re.findall(r"^ *\d+: (\w+:\w+) 0+:0000 0A ", listening, re.MULTILINE)
    assert addresses == [f"0100007F:{9464:04X}"]


def check_alibi(file: pathlib.Path) -> None:
    got = np.load(file)
    file.unlink()
    slopes = 2.0 ** -np.arange(1, 9)
    np.testing.assert_array_equal(got, -slopes[:, None] * np.abs(np.arange(-63, 64)))


def test_the_tool_fetches_a_tensor(served: Machine) -> None:
    served.output(*tool(*ALIBI, "/srv/alibi.npy"))
    check_alibi(served.folder / "srv" / "alibi.npy")


def test_the_server_runs_without_systemd(installed: Machine) -> None:
    script = """
        setpriv --reuid=attnbias --regid=attnbias --clear-groups attnbias-server \
          --listen=127.0.0.1:50051 --metrics-listen=127.0.0.1:0 --shutdown-delay=0s >/dev/null &
        attnbias --server=127.0.0.1:50051 "$@" /srv/alibi.npy
        kill $!
        wait $!
    """
    installed.shell(script, *ALIBI)
    check_alibi(installed.folder / "srv" / "alibi.npy")


def test_reload_and_restart_keep_it_running(served: Machine) -> None:
    for change in ("reload", "restart"):
        served.output("systemctl", change, UNIT)
        # Calls wait for a server that is starting; `health` does not.
        served.output(*tool("info"))


def test_systemd_analyze_verify_accepts_unit(installed: Machine) -> None:
    verified = installed.run("systemd-analyze", "verify", "--man=no", UNIT)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def test_unit_security_exposure_is_low(installed: Machine) -> None:
    measure = ("systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSED}")
    installed.output(*measure, f"/usr/lib/systemd/system/{UNIT}")


def test_manual_pages_are_installed(installed: Machine) -> None:
    folder = "/usr/share/man/man1"
    server = installed.output("zcat", f"{folder}/attnbias-server.1.gz")
    assert "ATTNBIAS_LISTEN" in server
    tool = installed.output("zcat", f"{folder}/attnbias.1.gz")
    commands = re.findall(r"^([a-z]+)$", tool.split('.SS "Subcommands:"')[1], re.MULTILINE)
    assert "get" in commands
    for command in commands:
        page = installed.output("zcat", f"{folder}/attnbias-{command}.1.gz")
        assert f"\nattnbias-{command} \\- " in page


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("ge", {"get"}),
        ("get t", {"t5", "tensor2tensor", "transformer_xl", "tupe"}),
        ("get alibi num_h", {"num_heads="}),
        ("get alibi --keep --data", {"--data-type"}),
        ("--server x health --ser", {"--server"}),
        ("list kerp", {"kerple"}),
    ],
)
def test_bash_completion_lists_words(installed: Machine, typed: str, completed: set[str]) -> None:
    script = """
        source /usr/share/bash-completion/completions/attnbias
        compopt() { :; }  # works only in an interactive shell
        COMP_LINE="attnbias $*"
        COMP_POINT=${#COMP_LINE}
        _attnbias attnbias "${!#}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    assert set(installed.shell(script, *typed.split()).split()) == completed


@pytest.mark.parametrize("how", ["cmake", "pkg-config"])
def test_cpp_consumer_builds_and_runs(served: Machine, how: str) -> None:
    build = {
        "cmake": 'cmake -S "$1" -B /srv/build -DFETCH="$2" && cmake --build /srv/build',
        "pkg-config": 'mkdir /srv/build && g++ -std=c++20 "$2" -o /srv/build/fetch'
        " $(pkg-config --cflags --libs attnbias)",
    }
    try:
        served.shell(build[how], CONSUMER, EXAMPLE)
        said = served.output("/srv/build/fetch", SERVER)
    finally:
        shutil.rmtree(served.folder / "srv" / "build")
    assert "query 1023, key 1020 of head 0: -1.5\n" in said


@pytest.mark.parametrize("program", ["attnbias", "attnbias-server"])
def test_programs_are_hardened(installed: Machine, program: str) -> None:
    assert lacks(installed.folder / "usr" / "bin" / program) == []


@pytest.mark.parametrize("package", ["attnbias", "attnbias-server"])
def test_sbom_names_every_linked_library(installed: Machine, package: str) -> None:
    linked = re.findall(r" => (/\S+)", installed.output("ldd", f"/usr/bin/{package}"))
    assert len(linked) > 20
    suite, architecture = installed.place
    (bill,) = (BUILT / suite).glob(f"{package}_*_{architecture}.spdx.json")
    named = {item["name"] for item in json.loads(bill.read_text())["packages"]}
    for library in linked:
        real = installed.output("realpath", library).strip().removeprefix("/usr")
        owners = installed.output("dpkg-query", "--search", f"*{real}").splitlines()
        names = {owner.split(":")[0] for owner in owners}
        assert names & named, library


def test_purge_leaves_nothing_behind(installed: Machine, before: set[str]) -> None:
    names = [path.name.split("_")[0] for path in built(installed.place)]
    installed.output(*APT_GET, "purge", *names)
    assert installed.run("systemctl", "is-active", UNIT).returncode != 0
    assert installed.state() ^ before == set()

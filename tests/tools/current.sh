# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $root and $cache are set by the sourcing script
# Builds with the current gRPC, on a Debian sid machine, into build/current.
# shellcheck source=tests/tools/bare_machine.sh
source "$root/tests/tools/bare_machine.sh"

# Creates the machine. Sets `machine` to its folder, and `there` to the words that run a command in
# it with this tree.
need_current_machine() {
  local hash files=("$root"/cmake/{current-grpc.pref,debian-packages.txt}
    "$root"/cmake/{use_current_grpc,install_build_packages,install_tracing}.sh
    "$root"/tests/tools/{debian-packages.txt,make_current_machine.sh,bare_machine.sh})
  hash=$(cat "${files[@]}" | sha256sum)
  machine=$cache/machines/current-${hash:0:12}
  # Debian may change these releases at any time.
  need_once "$machine" "$root/tests/tools/make_current_machine.sh" "$machine" ||
    skip "cannot create the machine: Debian lacks a version that cmake/current-grpc.pref states"
  mapfile -t there < <(env | grep '^CCACHE_')
  # The machine's own folder also has the same path inside it as here; see build_current.
  there=(in_machine "$machine" "$root" "$root $CCACHE_DIR $machine" env "${there[@]}")
}

# Builds the named targets, or all. The programs refer to the machine's loader and libraries by
# their paths here, so they run here as well as there.
build_current() {
  local folders libraries flags
  need_current_machine
  if [[ ! -e build/current/build.ninja || CMakePresets.json -nt build/current/build.ninja ]] ||
    ! grep --quiet --fixed-strings "$machine/" build/current/CMakeCache.txt; then
    folders=("$machine"/usr/lib/*-linux-gnu)
    libraries=${folders[0]}
    # In the usual directory OpenBLAS is a link into /etc/alternatives, and so to this machine's
    # library.
    flags=-Wl,--disable-new-dtags,-dynamic-linker,$(printf '%s\n' "$libraries"/ld-linux-*)
    flags+=,-rpath,$libraries/openblas-pthread,-rpath,$libraries
    "${there[@]}" cmake --fresh --preset dev -B build/current -DATTNBIAS_CUDA=OFF \
      -DCMAKE_EXE_LINKER_FLAGS="$flags"
  fi
  "${there[@]}" cmake --build build/current ${1:+--target "$@"}
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $root and $cache are set by the sourcing script
# Builds the wheels in build/wheels: the client, and the server for this machine's architecture or
# the named ones, including its libraries from Debian 12.
wheels=$root/build/wheels

# Unpacks the libraries for an architecture other than this machine's.
need_sysroot() {
  local hash files=("$root"/cmake/{debian-packages.txt,make_aarch64_sysroot.sh})
  need_packages "$root/cmake/debian-packages-aarch64.txt"
  hash=$(cat "${files[@]}" | sha256sum)
  ATTNBIAS_SYSROOT=$cache/sysroot-aarch64-${hash:0:12}
  export ATTNBIAS_SYSROOT
  need_once "$ATTNBIAS_SYSROOT" "${files[1]}" "$ATTNBIAS_SYSROOT"
}

make_server_wheel() {
  local stage=$1 libraries=$2
  rm -rf "$stage/dist"
  "$(venv_of wheel)/bin/pip" wheel --quiet --no-deps --no-build-isolation -w "$stage/dist" "$stage"
  # The wheel's name states the minimum glibc that all its binaries require.
  auditwheel repair --ldpaths "$libraries:$libraries/openblas-pthread" -w "$wheels" \
    "$stage"/dist/*.whl
}

build_server_wheel() {
  local architecture=$1 preset=release strip=strip installed=/ stage libraries program
  if [[ $architecture != "$(uname -m)" ]]; then
    [[ $architecture == aarch64 ]] || die "$architecture: needs a machine of this architecture"
    need_build_packages
    need_sysroot
    preset=release-aarch64 strip=aarch64-linux-gnu-strip installed=$ATTNBIAS_SYSROOT
    # The folder with the libraries may have changed.
    cmake --fresh --preset "$preset"
  fi
  build "$preset" attnbias-server attnbias

  # The folder has the depth that its pyproject.toml needs in order to find the version.
  stage=$root/build/server-wheel-$architecture
  rm -rf "$stage"
  cp -r deploy/wheel "$stage"
  cp LICENSE NOTICE "$stage"
  mkdir "$stage/src/attnbias_server/bin"
  for program in attnbias-server attnbias; do
    "$strip" -o "$stage/src/attnbias_server/bin/$program" "build/$preset/bin/$program"
  done
  # Built once to find its contents, and once more with their licenses.
  libraries=${installed%/}/usr/lib/$architecture-linux-gnu
  export DPKG_ADMINDIR=${installed%/}/var/lib/dpkg
  make_server_wheel "$stage" "$libraries"
  python3 deploy/wheel/collect_licenses.py "$wheels"/attnbias_server-*_"$architecture.whl" \
    "$installed" "$stage/licenses"
  make_server_wheel "$stage" "$libraries"
}

build_wheels() {
  local architecture
  (($#)) || set -- "$(uname -m)"
  for architecture in "$@"; do
    [[ $architecture =~ ^(x86_64|aarch64)$ ]] ||
      die "no wheel for $architecture; there are: x86_64 aarch64"
  done
  need_venv wheel
  rm -rf "$wheels"
  "$(venv_of wheel)/bin/pip" wheel --quiet --no-deps --no-build-isolation -w "$wheels" \
    "$root/client/python"
  for architecture in "$@"; do
    (build_server_wheel "$architecture")
  done
}

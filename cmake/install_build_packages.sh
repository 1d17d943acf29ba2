#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build dependencies, for this machine's architecture or for arm64, and the packages of
# further lists: install_build_packages.sh [ARCHITECTURE [LIST…]]. Architecture names are Debian's.
# Libraries of another architecture replace this machine's, so use it only on machines that build
# for one architecture.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
architecture=${1:-$(dpkg --print-architecture)}
lists=("$here/debian-packages.txt" "${@:2}")
if [[ $architecture != "$(dpkg --print-architecture)" ]]; then
  [[ $architecture == arm64 ]] || {
    echo "$architecture: only such a machine builds for it" >&2
    exit 1
  }
  dpkg --add-architecture arm64
  lists+=("$here/debian-packages-aarch64.txt")
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
sed -e '/^#/d' -e '/^$/d' "${lists[@]}" |
  while read -r name; do
    # apt 3 accepts architecture-independent packages only without an architecture suffix.
    if [[ $name == *-dev ]] && apt-cache show "$name:$architecture" &>/dev/null; then
      name+=:$architecture
    fi
    echo "$name"
  done |
  xargs apt-get -qq install -y --no-install-recommends >/dev/null
apt-get clean

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a machine that builds Debian packages: make_build_machine.sh FOLDER SUITE ARCHITECTURE.
# Needs root and debootstrap.
set -euo pipefail
machine=$1 suite=$2 architecture=$3
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/tools/bare_machine.sh
source "$root/tests/tools/bare_machine.sh"
mkdir -p "$machine"
make_machine "$machine" "$suite"
in_machine "$machine" "$root" "$root" cmake/install_build_packages.sh "$architecture" \
  cmake/debian-packages-deb.txt

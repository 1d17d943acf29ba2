#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a machine that builds with the current gRPC: make_current_machine.sh FOLDER. Needs root and
# debootstrap.
set -euo pipefail
machine=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/tools/bare_machine.sh
source "$root/tests/tools/bare_machine.sh"
mkdir -p "$machine"
make_machine "$machine" sid
in_machine "$machine" "$root" "$root" cmake/use_current_grpc.sh
# Only the libraries of the packages that tests need.
in_machine "$machine" "$root" "$root" cmake/install_build_packages.sh \
  "$(dpkg --print-architecture)" <(grep -- '-dev$' "$root/tests/tools/debian-packages.txt")
in_machine "$machine" "$root" "$root" cmake/install_tracing.sh

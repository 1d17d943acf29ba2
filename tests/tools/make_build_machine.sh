#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a machine that builds Debian packages: make_build_machine.sh FOLDER SUITE. Needs root and
# debootstrap.
set -euo pipefail
machine=$1 suite=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/tools/bare_machine.sh
source "$root/tests/tools/bare_machine.sh"
mapfile -t names < <(sed -e '/^#/d' -e '/^$/d' "$root"/cmake/debian-packages{,-deb}.txt)
apt=(in_machine "$machine" / '' env DEBIAN_FRONTEND=noninteractive apt-get -qq)
mkdir -p "$machine"
make_machine "$machine" "$suite"
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${names[@]}" >/dev/null
"${apt[@]}" clean

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the wheels from build/wheels on a bare Debian 12 and a bare Debian 13 with only Python,
# and uses them. Needs root and debootstrap.
#
#   tests/packaging/wheels/run.sh [DIRECTORY]    # where folders are created; default /var/tmp
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
((EUID == 0)) || { echo "run.sh: needs root" >&2 && exit 1; }
# shellcheck source=tests/tools/bare_machine.sh
source "$root/tests/tools/bare_machine.sh"

if [[ ${1:-} == --inside ]]; then
  enter_machine "$2" /
  "${inside[@]}" update-ca-certificates
  "${inside[@]}" python3 -m venv /venv
  "${inside[@]}" /venv/bin/pip install --quiet --find-links /wheels 'attnbias[server]'
  "${inside[@]}" /venv/bin/python /use.py
  exit
fi

for suite in bookworm trixie; do
  machine=$(mktemp -d "${1:-/var/tmp}/attnbias-wheels.XXXXXX")
  trap 'rm -rf --one-file-system "$machine"' EXIT
  make_machine "$machine" "$suite" '' python3-venv ca-certificates
  cp -r "$root"/{build/wheels,tests/packaging/wheels/use.py,tests/support/server_process.py} \
    "$machine"
  unshare --mount --pid --fork --kill-child "${BASH_SOURCE[0]}" --inside "$machine"
  rm -rf --one-file-system "$machine"
  printf '=== %s\n' "$suite"
done

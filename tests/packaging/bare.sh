#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs ./dev serve and ./dev test on a bare Debian 12: a clean clone of HEAD in a debootstrap
# folder, with only bash, apt and root. Needs root, git and debootstrap, and takes as long as
# building and testing everything from scratch.
#
#   tests/packaging/bare.sh [DIRECTORY]    # where the folder is created; default /var/tmp
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
((EUID == 0)) || { echo "bare.sh: needs root" >&2 && exit 1; }

# shellcheck source=tests/tools/bare_machine.sh
source "$root/tests/tools/bare_machine.sh"

# The first command: it must answer, and exit gracefully when stopped.
serve() {
  local line server fd
  exec {fd}< <(exec "${inside[@]}" ./dev serve)
  server=$!
  while read -r line <&"$fd"; do
    printf '%s\n' "$line"
    [[ $line != "listening on "* ]] || break
  done
  # Rules out another server that happens to have the port.
  [[ $line == "listening on "* ]]
  printf '=== answers after %d s\n' "$SECONDS"
  "${inside[@]}" ./dev attnbias health
  "${inside[@]}" ./dev attnbias get alibi num_heads=8 --query-length 4 --key-length 4
  kill "$server"
  wait "$server"
}

timed() {
  SECONDS=0
  "$@"
  printf '=== %s: %d s\n' "${*: -1}" "$SECONDS"
}

if [[ ${1:-} == --inside ]]; then
  enter_machine "$2" /attnbias
  timed serve
  timed serve
  timed "${inside[@]}" ./dev test
  exit
fi

machine=$(mktemp -d "${1:-/var/tmp}/attnbias-bare.XXXXXX")
trap 'rm -rf --one-file-system "$machine"' EXIT
make_machine "$machine" bookworm
git clone --quiet --no-hardlinks "$root" "$machine/attnbias"
unshare --mount --pid --fork --kill-child "${BASH_SOURCE[0]}" --inside "$machine"

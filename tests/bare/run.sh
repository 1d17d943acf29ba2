#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the two commands of the README on a bare Debian 12: a clean clone of HEAD in a
# debootstrap folder, with bash, apt and root and nothing else. Needs root, git and
# debootstrap, and takes as long as everything built and tested from nothing.
#
#   tests/bare/run.sh [DIRECTORY]    # where the folder is made and removed; default /var/tmp
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
((EUID == 0)) || { echo "run.sh: needs root" >&2 && exit 1; }

# What a machine of this network has been told beforehand: names, proxies, authorities.
hand_in_network() {
  local machine=$1 file
  cp --dereference /etc/resolv.conf /etc/hosts "$machine/etc/"
  if [[ -e /etc/pip.conf ]]; then
    cp --dereference /etc/pip.conf "$machine/etc/"
  fi
  for file in /etc/apt/apt.conf.d/*; do
    if grep -q '^ *Acquire::' "$file"; then
      cp "$file" "$machine/etc/apt/apt.conf.d/"
    fi
  done
  # The package ca-certificates takes in what lies here.
  if [[ -e /etc/ssl/certs/ca-certificates.crt ]]; then
    mkdir -p "$machine/usr/local/share/ca-certificates"
    cp --dereference /etc/ssl/certs/ca-certificates.crt \
      "$machine/usr/local/share/ca-certificates/host.crt"
  fi
}

# Sets `inside` to the words that run a command in the clone on the machine.
set_inside() {
  local machine=$1 name environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root)
  for name in {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY GOPROXY GOSUMDB GONOSUMDB \
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
    if [[ -n ${!name:-} ]]; then
      environment+=("$name=${!name}")
    fi
  done
  inside=(chroot "$machine" env --ignore-environment --chdir=/attnbias "${environment[@]}")
}

# The first command: it has to answer and to end well when told to.
serve() {
  local line server fd
  exec {fd}< <(exec "${inside[@]}" ./dev serve)
  server=$!
  while read -r line <&"$fd"; do
    printf '%s\n' "$line"
    [[ $line != "listening on "* ]] || break
  done
  # Not some other server that happens to have the port.
  [[ $line == "listening on "* ]]
  "${inside[@]}" build/release/bin/attnbias health
  "${inside[@]}" build/release/bin/attnbias get alibi num_heads=8 --queries 4 --keys 4
  kill "$server"
  wait "$server"
}

timed() {
  SECONDS=0
  "$@"
  printf '=== %s: %d s\n' "${*: -1}" "$SECONDS"
}

# In namespaces of its own, so that no mount and no process outlives the run.
if [[ ${1:-} == --inside ]]; then
  machine=$2
  mount --rbind /dev "$machine/dev"
  mount --rbind /sys "$machine/sys"
  mount -t proc proc "$machine/proc"
  set_inside "$machine"
  timed serve
  timed serve
  timed "${inside[@]}" ./dev test
  exit
fi

machine=$(mktemp -d "${1:-/var/tmp}/attnbias-bare.XXXXXX")
chmod 755 "$machine"  # apt drops to a user of its own
trap 'rm -rf --one-file-system "$machine"' EXIT
debootstrap --variant=minbase bookworm "$machine" >"$machine.log" ||
  { cat "$machine.log" >&2 && exit 1; }
rm "$machine.log"
hand_in_network "$machine"
git clone --quiet --no-hardlinks "$root" "$machine/attnbias"
unshare --mount --pid --fork --kill-child "${BASH_SOURCE[0]}" --inside "$machine"

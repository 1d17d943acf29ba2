# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Bare Debian machines as folders, for tests that start from scratch. Needs root and debootstrap.

# Copies the network's settings: names, proxies, authorities.
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
  # The package ca-certificates adds the files in this folder.
  if [[ -e /etc/ssl/certs/ca-certificates.crt ]]; then
    mkdir -p "$machine/usr/local/share/ca-certificates"
    cp --dereference /etc/ssl/certs/ca-certificates.crt \
      "$machine/usr/local/share/ca-certificates/host.crt"
  fi
}

# Creates a machine with a minimal Debian and the named packages, for this machine's architecture or
# another that it can run: make_machine FOLDER SUITE [ARCHITECTURE [PACKAGE…]]
make_machine() {
  local machine=$1 suite=$2 architecture=${3:-$(dpkg --print-architecture)} packages="${*:4}"
  chmod 755 "$machine"  # apt drops to its own user
  debootstrap --arch="$architecture" --variant=minbase \
    ${packages:+--include="${packages// /,}"} "$suite" "$machine" >"$machine.log" ||
    { cat "$machine.log" >&2 && return 1; }
  rm "$machine.log"
  hand_in_network "$machine"
}

# Enters separate namespaces, so that no mount or process outlives the run, gives the machine its
# devices, and sets `inside` to the words that run a command there. enter_machine MACHINE DIRECTORY
enter_machine() {
  local machine=$1 name environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root)
  mount --rbind /dev "$machine/dev"
  mount --rbind /sys "$machine/sys"
  mount -t proc proc "$machine/proc"
  for name in {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY GOPROXY GOSUMDB GONOSUMDB \
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL; do
    if [[ -n ${!name:-} ]]; then
      environment+=("$name=${!name}")
    fi
  done
  # shellcheck disable=SC2034  # the sourcing script's
  inside=(chroot "$machine" env --ignore-environment --chdir="$2" "${environment[@]}")
}

# Runs a command in a machine, in separate namespaces. Our folders have the same paths there as
# here: in_machine MACHINE DIRECTORY "[FOLDER…]" COMMAND…
in_machine() {
  # shellcheck disable=SC2016  # the inner shell's
  unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
    source "$1"
    for folder in $4; do
      mkdir -p "$2$folder"
      mount --bind "$folder" "$2$folder"
    done
    enter_machine "$2" "$3"
    exec "${inside[@]}" "${@:5}"' bash "${BASH_SOURCE[0]}" "$@"
}

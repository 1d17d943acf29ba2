#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs this folder's tests in separate network, mount and process namespaces, which all their
# processes share and which end with them. Needs root.
#
#   tests/packaging/kubernetes/run.sh IMAGES [ARGUMENT of pytest…] # IMAGES: as images.py saved them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
((EUID == 0)) || { echo "run.sh: needs root" >&2 && exit 1; }
group=attnbias-kubernetes

# Makes a control group in each hierarchy, with all of its parent's controllers.
make_group() {
  local root above file
  for root in "${roots[@]}"; do
    mkdir -p "$root/$1"
    above=$(dirname "$root/$1")
    if [[ -e $above/cgroup.subtree_control && -e $above/cgroup.controllers ]]; then
      sed 's/[a-z_]\+/+&/g' "$above/cgroup.controllers" >"$above/cgroup.subtree_control"
    fi
    for file in cpuset.cpus cpuset.mems; do
      [[ ! -e $above/cgroup.clone_children || ! -e $above/$file ]] ||
        cat "$above/$file" >"$root/$1/$file"
    done
  done
}

clean() {
  for root in "${roots[@]}"; do
    [[ ! -e $root/$group ]] || find "$root/$group" -depth -type d -exec rmdir {} +
  done
  rm -rf --one-file-system "$KUBERNETES_FOLDER"
}

# Runs as the first process in its namespace, which reaps containers' orphaned processes.
inside() {
  local folder setting names
  # The kubelet requires shared mounts; these are shared only within this namespace.
  mount --make-rshared /
  # Files written there also disappear when this run ends, whatever flags the programs are given.
  for folder in /run /var/lib /var/log; do
    mount -t tmpfs tmpfs "$folder"
  done
  # The kubelet would set these for the whole machine.
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
    echo "${setting#*=}" >"/run/${setting//[\/=]/-}"
    mount --bind "/run/${setting//[\/=]/-}" "/proc/sys/${setting%=*}"
  done
  names=$(readlink -m /etc/resolv.conf)
  mkdir -p "$(dirname "$names")"
  [[ -e $names ]] || touch "$names"
  touch "$KUBERNETES_FOLDER/resolv.conf"
  mount --bind "$KUBERNETES_FOLDER/resolv.conf" "$names"
  HOME=$KUBERNETES_FOLDER pytest "$@"
}

if [[ ${1:-} == --inside ]]; then
  inside "${@:2}"
  exit
fi

if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
  roots=(/sys/fs/cgroup)
else
  roots=(/sys/fs/cgroup/*)
fi
KUBERNETES_IMAGES=$(realpath "$1")
KUBERNETES_FOLDER=$(mktemp -d /var/tmp/attnbias-kubernetes.XXXXXX)
export KUBERNETES_GROUP=$group KUBERNETES_IMAGES KUBERNETES_FOLDER
trap clean EXIT
make_group "$group"
for node in 1 2; do
  make_group "$group/node-$node"
done
unshare --net --mount --pid --fork --kill-child --mount-proc \
  tests/packaging/kubernetes/run.sh --inside "${2:-tests/packaging/kubernetes}" "${@:3}"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copies programs and libraries, with the libraries and data that they need, into an image's root:
# make_image_root.sh ROOT FILE… Copies no other program. Lists the packages of the copied files in
# var/lib/dpkg/status.d, where scanners look, and copies their licenses to usr/share/doc. Needs
# pax-utils.
set -euo pipefail
root=$1 files=("${@:2}")
# Certificates of public authorities, time zones, and the release.
data=(/etc/ssl/certs/ca-certificates.crt /usr/share/zoneinfo /etc/debian_version
  /usr/lib/os-release)

mkdir -p "$root"/{dev,etc,proc,sys,usr/{bin,lib,lib64,sbin},var/lib/dpkg/status.d}
mkdir --mode 1777 "$root/tmp"
ln -s usr/{bin,lib,lib64,sbin} "$root"
ln -s ../usr/lib/os-release "$root/etc"
cp --archive --parents "${data[@]}" "$root"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
printf '%s:x:%d:%d::/:/\n' root 0 0 nonroot 65532 65532 >"$root/etc/passwd"
printf '%s:x:%d:\n' root 0 nonroot 65532 >"$root/etc/group"
lddtree --copy-to-tree "$root" "${files[@]}"

# The programs and our own libraries belong to no package.
mapfile -t packages < <(lddtree --list "${files[@]}" | xargs realpath "${data[@]:1}" | sort -u |
  xargs dpkg-query --search 2>/dev/null | sed 's/: .*//' | sort -u)
for package in ca-certificates "${packages[@]}"; do
  name=${package%:*}
  { dpkg-query --status "$package" && echo; } >"$root/var/lib/dpkg/status.d/$name"
  cp "$(dpkg-query --control-path "$package" md5sums)" \
    "$root/var/lib/dpkg/status.d/$name.md5sums"
  cp --archive --parents --dereference "/usr/share/doc/$name/copyright" "$root"
done

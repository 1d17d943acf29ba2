#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copies programs and libraries, with what they need of this machine, into an image's root:
# make-image-root.sh ROOT FILE… No other program comes with them. The packages that these files are
# of stand in var/lib/dpkg/status.d, where scanners look, and their licences in usr/share/doc.
# Needs pax-utils.
set -euo pipefail
root=$1 files=("${@:2}")
# Certificates of public authorities, time zones, and what tells the release.
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

# The programs themselves, and our own libraries, are of no package.
mapfile -t packages < <(lddtree --list "${files[@]}" | xargs realpath "${data[@]:1}" | sort -u |
  xargs dpkg-query --search 2>/dev/null | sed 's/: .*//' | sort -u)
for package in ca-certificates "${packages[@]}"; do
  name=${package%:*}
  { dpkg-query --status "$package" && echo; } >"$root/var/lib/dpkg/status.d/$name"
  cp "$(dpkg-query --control-path "$package" md5sums)" \
    "$root/var/lib/dpkg/status.d/$name.md5sums"
  cp --archive --parents --dereference "/usr/share/doc/$name/copyright" "$root"
done

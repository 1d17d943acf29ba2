#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks the libraries that the build needs, from Debian 12 for arm64, into a folder:
# make_aarch64_sysroot.sh FOLDER. This machine's own packages do not change.
# DPKG_ADMINDIR=FOLDER/var/lib/dpkg lets dpkg find the package of a file there.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
apt=$folder/apt
mkdir -p "$apt"/{state,cache} "$folder/usr/lib" "$folder/var/lib/dpkg"/{info,updates}
ln -s usr/lib "$folder/lib"
touch "$apt/status"
echo 1 >"$folder/var/lib/dpkg/info/format"
key=/usr/share/keyrings/debian-archive-keyring.gpg
cat >"$apt/sources.list" <<END
deb [signed-by=$key] http://deb.debian.org/debian bookworm main
deb [signed-by=$key] http://deb.debian.org/debian bookworm-updates main
deb [signed-by=$key] http://deb.debian.org/debian-security bookworm-security main
END
get() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
    -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State="$apt/state" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
    -o APT::Sandbox::User=root "$@"
}
# Libraries, contracts, and the plugin that gRPC's own CMake files require.
mapfile -t packages < <(grep -E '^lib|-dev$|grpc' "$(dirname "$0")/debian-packages.txt")
get update
get install --download-only -y --no-install-recommends "${packages[@]}"
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --keep-directory-symlink
  name=$(dpkg-deb --field "$package" Package)
  [[ $(dpkg-deb --field "$package" Multi-Arch) != same ]] || name+=:arm64
  dpkg-deb --fsys-tarfile "$package" | tar -t | sed -e "s:^\.:$folder:" -e 's:/$::' \
    >"$folder/var/lib/dpkg/info/$name.list"
  printf 'Status: install ok installed\n%s\n\n' "$(dpkg-deb --field "$package")"
done >"$folder/var/lib/dpkg/status"
rm -r "$apt"
# Links that point outside the folder.
find "$folder/usr/lib" -lname '/*' -printf '%p\t%l\n' |
  while IFS=$'\t' read -r link target; do
    ln -sfn "$folder$target" "$link"
  done

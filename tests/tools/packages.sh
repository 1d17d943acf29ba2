# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $root and $cache are set by the sourcing script
# Builds Debian packages in build/packages, in a folder for each Debian release, each with its bill
# of materials. Each release and architecture has its own build machine. The image also has such a
# bill.
# shellcheck source=tests/tools/bare_machine.sh
source "$root/tests/tools/bare_machine.sh"
packages=$root/build/packages
suites=(bookworm trixie)
# This machine's architecture comes first.
architectures=(amd64 arm64)
[[ $(uname -m) != aarch64 ]] || architectures=(arm64)

# Creates the machine that builds for a suite and an architecture. Sets `machine` to its folder, and
# `there` to the words that run a command in it with this tree: need_build_machine SUITE
# ARCHITECTURE
need_build_machine() {
  local hash files=("$root"/cmake/{debian-packages{,-aarch64,-deb}.txt,install_build_packages.sh}
    "$root"/tests/tools/{make_build_machine,bare_machine}.sh)
  hash=$(cat "${files[@]}" | sha256sum)
  machine=$cache/machines/$1-$2-${hash:0:12}
  need_once "$machine" "$root/tests/tools/make_build_machine.sh" "$machine" "$1" "$2"
  mapfile -t there < <(env | grep '^CCACHE_')
  there=(in_machine "$machine" "$root" "$root $CCACHE_DIR" env DEB_HOST_ARCH="$2" "${there[@]}")
}

# Makes FILE.spdx.json from dpkg's data about packages. Their sources are included if apt, on a
# machine with the same release, knows them: bill_of_materials NAME ARCHITECTURE MACHINE FILE
# ENTRIES
bill_of_materials() {
  debsbom generate --sbom-type spdx --validate --from-pkglist --distro-name "$1" \
    --distro-arch "$2" --root "$3" --out "$4" <<<"$5"
}

# Prints the packages in a machine that contain the libraries linked into a program there:
# packages_of_libraries PROGRAM ARCHITECTURE
packages_of_libraries() {
  local ldd=(ldd)
  [[ $2 == "$(dpkg --print-architecture)" ]] ||
    ldd=(qemu-aarch64 /lib/ld-linux-aarch64.so.1 --list)
  # dpkg may list a file in /usr/lib as a file in /lib.
  # shellcheck disable=SC2016  # the inner shell's
  "${there[@]}" bash -euo pipefail -c '
    "$@" | grep -o " /[^ ]*" | xargs realpath | sed "s:^\(/usr\)\?:*:" |
      xargs dpkg-query --search | sed "s/: .*//"' bash "${ldd[@]}" "$1"
}

# Writes a package's bill of materials: the libraries that its programs use, and those whose headers
# are compiled in.
write_bill() {
  local package=$1 architecture=$2 unpacked=$root/$folder/unpacked program names entries
  rm -rf "$unpacked"
  dpkg-deb --extract "$package" "$unpacked"
  names=$(grep -- '-dev$' cmake/debian-packages.txt)
  for program in "$unpacked"/usr/bin/*; do
    [[ ! -e $program ]] || names+=$'\n'$(packages_of_libraries "$program" "$architecture")
  done
  mapfile -t names < <(sort -u <<<"$names")
  # The package itself comes last, since debsbom uses the first line to distinguish such entries
  # from a list of names.
  entries=$("${there[@]}" dpkg-query --status "${names[@]}")
  entries+=$'\n\n'$(dpkg-deb --field "$package")$'\nStatus: install ok installed'
  bill_of_materials "$(dpkg-deb --field "$package" Package)" "$architecture" "$machine" \
    "${package%.deb}" "$entries"
}

build_packages_for() {
  local suite=$1 architecture=$2 preset=release machine there package
  local folder=build/packages-$suite-$architecture
  need_build_machine "$suite" "$architecture"
  [[ $architecture == "$(dpkg --print-architecture)" ]] || preset=release-aarch64
  "${there[@]}" cmake --fresh --preset "$preset" -B "$folder" -DATTNBIAS_CUDA=OFF \
    -DATTNBIAS_PACKAGES=ON -DCMAKE_INSTALL_PREFIX=/usr
  "${there[@]}" cmake --build "$folder"
  rm -rf "$folder/_CPack_Packages"
  mkdir -p "$packages/$suite"
  "${there[@]}" cpack --config "$folder/CPackConfig.cmake" -B "$folder"
  for package in "$folder"/*.deb; do
    mv "$package" "$packages/$suite"
    write_bill "$packages/$suite/${package##*/}" "$architecture"
  done
}

# build_packages [RELEASE|ARCHITECTURE…]
build_packages() {
  local word suite architecture for_suites=() for_architectures=()
  ((EUID == 0)) || die "packages: creating a machine of each Debian release needs root"
  for word in "$@"; do
    case " ${suites[*]} / ${architectures[*]} " in
      *" $word "*/*) for_suites+=("$word") ;;
      */*" $word "*) for_architectures+=("$word") ;;
      *) die "no packages for $word; there are: ${suites[*]} ${architectures[*]}" ;;
    esac
  done
  ((${#for_suites[@]})) || for_suites=("${suites[@]}")
  ((${#for_architectures[@]})) || for_architectures=("${architectures[@]}")
  need_packages "$root/tests/tools/debian-packages-packages.txt"
  need_venv bill
  rm -rf "$packages"
  for suite in "${for_suites[@]}"; do
    for architecture in "${for_architectures[@]}"; do
      (build_packages_for "$suite" "$architecture")
    done
  done
}

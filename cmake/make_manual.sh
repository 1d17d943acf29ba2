#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes manual pages from the help of a program and its subcommands: make_manual.sh FOLDER VERSION
# [EMULATOR…] PROGRAM. Needs help2man.
set -euo pipefail
folder=$1 version=$2 program=("${@:3}") name=${!#}
name=${name##*/}

# make_page NAME WORD…
make_page() {
  local page=$folder/$1.1 help
  help=$("${@:2}" --help)
  # help2man assumes that the last word of a command is its name.
  help2man --no-info --version-string="$version" --name="$(head -n 1 <<<"$help")" "${*:2}" |
    sed "/^\.SH NAME$/{n;s/^.* \\\\- /$1 \\\\- /}" >"$page"
  gzip -9fn "$page"
}

rm -rf "$folder"
mkdir -p "$folder"
mapfile -t commands < <("${program[@]}" --help |
  sed -n '/^Subcommands:$/,/^$/s/^  \([a-z]\+\) .*/\1/p')
for command in "${commands[@]}"; do
  make_page "$name-$command" "${program[@]}" "$command"
done
make_page "$name" "${program[@]}"

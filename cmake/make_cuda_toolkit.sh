#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a CUDA toolkit from PyPI packages: make_cuda_toolkit.sh FOLDER. Its compiler is
# FOLDER/toolkit/bin/nvcc. Needs python3-venv.
set -euo pipefail
folder=$1
/usr/bin/python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check \
  -r "$(dirname "${BASH_SOURCE[0]}")/requirements-cuda.txt"
packages=("$folder"/lib/python3*/site-packages/nvidia/cu13)
ln -s "${packages[0]#"$folder/"}" "$folder/toolkit"
# Names that compilers and linkers look for; the packages contain only the run-time names.
ln -s lib "$folder/toolkit/lib64"
for library in cublas cudart; do
  ln -s "lib$library.so.13" "$folder/toolkit/lib/lib$library.so"
done
# Since glibc 2.42 the C library also declares these two, with this specifier.
if grep --quiet rsqrt /usr/include/*/bits/mathcalls.h; then
  sed -i -E 's/( rsqrtf?\((double|float) x\));/\1 noexcept (true);/' \
    "$folder/toolkit/include/crt/math_functions.h"
fi

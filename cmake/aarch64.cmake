# SPDX-License-Identifier: Apache-2.0
# Compiles for aarch64 on another machine, against the folder that
# make-aarch64-sysroot.sh makes; the preset release-aarch64 names it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# Programs that run while building are this machine's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(libraries "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu")
# Where a machine's alternatives would lead.
set(ENV{PKG_CONFIG_LIBDIR} "${libraries}/pkgconfig:${libraries}/openblas-pthread/pkgconfig")

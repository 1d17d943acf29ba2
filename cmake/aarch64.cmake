# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for aarch64 with the release-aarch64 preset: against the folder ATTNBIAS_SYSROOT,
# which make_aarch64_sysroot.sh makes, or, if that is unset, against the packages that
# install_build_packages.sh installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# Programs that the build runs are taken from this machine. Newly built ones run too, but only to
# print the help that becomes their manual.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${CMAKE_SYSROOT}/")
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# CMake sets this by default when it compiles for Debian on Debian.
set(CMAKE_INSTALL_LIBDIR lib/aarch64-linux-gnu)

set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(libraries "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu")
# The machine's alternatives system would select its own libraries.
set(ENV{PKG_CONFIG_LIBDIR} "${libraries}/pkgconfig:${libraries}/openblas-pthread/pkgconfig")

# SPDX-License-Identifier: Apache-2.0
# Compiles for aarch64 on another machine, for the preset release-aarch64: against the folder
# ATTNBIAS_SYSROOT, which make_aarch64_sysroot.sh makes, or if unset against what
# install_build_packages.sh has installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# Programs that run while building are this machine's, except for those that were built: their
# output is in their manual.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${CMAKE_SYSROOT}/")
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# CMake has this by default when it compiles for Debian on Debian.
set(CMAKE_INSTALL_LIBDIR lib/aarch64-linux-gnu)

set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(libraries "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu")
# A machine's alternatives would lead there.
set(ENV{PKG_CONFIG_LIBDIR} "${libraries}/pkgconfig:${libraries}/openblas-pthread/pkgconfig")

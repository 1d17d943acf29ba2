# SPDX-License-Identifier: Apache-2.0
# Makes memory errors harder to exploit in Release builds, which are deployed.
# tests/packaging/container/hardening.py checks programs for these measures.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  return()
endif()

# Needed if the compiler does not link programs this way by default.
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)

# Marks the targets of jumps and returns. Debian 12's own start files have no such marks, so linkers
# do not mark the whole program, and the kernel does not enforce them.
set(control_flow "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(control_flow -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(control_flow -mbranch-protection=standard)
endif()

# Bounds checks in C++ containers cost nothing in hot code, since kernels work on plain pointers.
foreach(flag IN ITEMS -fstack-protector-strong -fstack-clash-protection ${control_flow}
                      -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -D_GLIBCXX_ASSERTIONS)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:${flag}>)
endforeach()
add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)

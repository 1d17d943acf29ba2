# SPDX-License-Identifier: Apache-2.0
# attnbias::client, for find_package(attnbias).
include(CMakeFindDependencyMacro)
find_dependency(absl)
find_dependency(OpenSSL)
find_dependency(Protobuf)
find_dependency(gRPC)
include("${CMAKE_CURRENT_LIST_DIR}/attnbiasTargets.cmake")

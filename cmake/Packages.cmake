# SPDX-License-Identifier: Apache-2.0
# Builds Debian packages with cpack: the server, the command-line tool, and the C++ library. They
# depend on the libraries of the Debian release on which they are built.
find_program(HELP2MAN help2man REQUIRED)
set(debian "${PROJECT_SOURCE_DIR}/deploy/debian")

# Converts the output of --help to manual pages.
function(attnbias_manual component target)
  set(pages "${PROJECT_BINARY_DIR}/manual/${component}")
  set(script "${PROJECT_SOURCE_DIR}/cmake/make_manual.sh")
  add_custom_command(
    OUTPUT "${pages}/${target}.1.gz"
    COMMAND "${script}" "${pages}" "${PROJECT_VERSION}" ${CMAKE_CROSSCOMPILING_EMULATOR}
            "$<TARGET_FILE:${target}>"
    DEPENDS "${script}" ${target})
  add_custom_target(${target}_manual ALL DEPENDS "${pages}/${target}.1.gz")
  install(DIRECTORY "${pages}/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
          COMPONENT ${component})
endfunction()
attnbias_manual(server attnbias-server)
attnbias_manual(cli attnbias)

install(FILES "${debian}/attnbias-server.service" DESTINATION lib/systemd/system COMPONENT server)
install(FILES "${debian}/attnbias-server.sysusers" RENAME attnbias-server.conf
        DESTINATION lib/sysusers.d COMPONENT server)
install(FILES "${debian}/attnbias-server.default" RENAME attnbias-server
        DESTINATION /etc/default COMPONENT server)
install(FILES "${debian}/attnbias.bash-completion" RENAME attnbias
        DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT cli)

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL server cli dev)
# Each package has its own description.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_PACKAGE_CONTACT "attnbias <attnbias@users.noreply.github.com>")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# This machine's architecture, or the one that DEB_HOST_ARCH names.
execute_process(COMMAND dpkg-architecture --query DEB_HOST_ARCH
                OUTPUT_VARIABLE CPACK_DEBIAN_PACKAGE_ARCHITECTURE
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
# Allows a Debian upgrade to install the packages for the new release.
file(STRINGS /etc/os-release release REGEX "^VERSION_ID=")
string(REGEX REPLACE "[^0-9]" "" release "${release}")
set(CPACK_DEBIAN_PACKAGE_RELEASE "1~deb${release}")

set(CPACK_DEBIAN_SERVER_PACKAGE_NAME attnbias-server)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION net)
set(CPACK_COMPONENT_SERVER_DESCRIPTION "${PROJECT_DESCRIPTION}: server
It computes, caches and streams them over gRPC. Once installed it listens on a
socket file alone: see /etc/default/attnbias-server.")
set(CPACK_DEBIAN_SERVER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS
    "systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
    "${debian}/conffiles;${debian}/postinst;${debian}/prerm;${debian}/postrm")

set(CPACK_DEBIAN_CLI_PACKAGE_NAME attnbias)
set(CPACK_DEBIAN_CLI_PACKAGE_SECTION utils)
set(CPACK_COMPONENT_CLI_DESCRIPTION "${PROJECT_DESCRIPTION}: command-line tool
It fetches them from a server into files, and draws them.")
set(CPACK_DEBIAN_CLI_PACKAGE_SHLIBDEPS ON)

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libattnbias-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DESCRIPTION "${PROJECT_DESCRIPTION}: client library for C++
A static library with its headers, for CMake's find_package(attnbias) and pkg-config.")
# gRPC's own CMake package requires the last one.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libabsl-dev, libgrpc++-dev, libisal-dev, libprotobuf-dev, libssl-dev, protobuf-compiler-grpc")

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" RENAME copyright COMPONENT ${component}
          DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}")
endforeach()
include(CPack)

# What `cmake --install` puts where: the shared library, the headers, spillway.pc, and
# the package for find_package(spillway), which has the target spillway::spillway. All
# of it can be moved as a whole. The archive stays here, for it has private symbols.
# Everything has a component, so that a Python wheel, which takes what has none, gets
# nothing of it.
include(CMakePackageConfigHelpers)

set(SPILLWAY_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/spillway)
install(TARGETS spillway EXPORT spillway-targets
    LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
install(DIRECTORY include/spillway DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT development FILES_MATCHING PATTERN "*.h")

install(EXPORT spillway-targets NAMESPACE spillway:: DESTINATION ${SPILLWAY_PACKAGE_DIR}
    COMPONENT development)
configure_package_config_file(cmake/spillway-config.cmake.in spillway-config.cmake
    INSTALL_DESTINATION ${SPILLWAY_PACKAGE_DIR})
# Until 1.0 a minor version may change what a program relies on.
write_basic_package_version_file(spillway-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/spillway-config.cmake
    ${PROJECT_BINARY_DIR}/spillway-config-version.cmake
    DESTINATION ${SPILLWAY_PACKAGE_DIR} COMPONENT development)

if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR is relative to the prefix here")
endif()
file(RELATIVE_PATH PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(PREPEND PC_PREFIX "\${pcfiledir}/")
configure_file(cmake/spillway.pc.in spillway.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/spillway.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

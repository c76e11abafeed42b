# What `cmake --install` and a wheel put where.
#
#   system   lib/librabbet*.so  bin/rabbet  include/rabbet/  lib/cmake/rabbet/
#   wheel    the same below rabbet/, the command also as a script of the
#            environment, and the libraries that we need and cannot expect to be
#            there (oneDNN, OpenMP, protobuf-c, zlib), found by $ORIGIN
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(RABBET_WHEEL)
  set(prefix rabbet/)
  set(libdir rabbet/lib)
else()
  set(prefix "")
  set(libdir ${CMAKE_INSTALL_LIBDIR})
endif()

install(TARGETS rabbet_runtime rabbet rabbet_pyhost rabbet_headers EXPORT rabbet-targets
  LIBRARY DESTINATION ${libdir} COMPONENT runtime
  INCLUDES DESTINATION ${prefix}include)
install(TARGETS ${RABBET_DEVICES} LIBRARY DESTINATION ${libdir} COMPONENT runtime)
install(TARGETS rabbet_trial RUNTIME DESTINATION ${libdir} COMPONENT runtime)
install(TARGETS rabbet_command RUNTIME DESTINATION ${prefix}bin
  COMPONENT command)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rabbet
  DESTINATION ${prefix}include COMPONENT development FILES_MATCHING
  PATTERN "*.h")
install(EXPORT rabbet-targets NAMESPACE rabbet::
  DESTINATION ${libdir}/cmake/rabbet COMPONENT development)
# A build folder can be used as an installation: -Drabbet_ROOT=build.
export(EXPORT rabbet-targets NAMESPACE rabbet::
  FILE ${PROJECT_BINARY_DIR}/rabbet-targets.cmake)
# pkg-config, with places beside its own, so that the prefix can be moved.
foreach(name rabbet rabbet_runtime rabbet_pyhost)
  set(libraries "-l${name}")
  if(NOT name STREQUAL rabbet_runtime)
    string(APPEND libraries " -lrabbet_runtime")
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/rabbet.pc.in
    ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc
    DESTINATION ${libdir}/pkgconfig COMPONENT development)
endforeach()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/rabbet-config.cmake.in
  ${PROJECT_BINARY_DIR}/rabbet-config.cmake
  INSTALL_DESTINATION ${libdir}/cmake/rabbet)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/rabbet-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rabbet-config.cmake
  ${PROJECT_BINARY_DIR}/rabbet-config-version.cmake
  DESTINATION ${libdir}/cmake/rabbet COMPONENT development)

if(RABBET_WHEEL)
  # The script lies in <environment>/bin; where the package is seen from there
  # depends on the Python version, and a free-threaded one is another.
  set(rpath "")
  set(versions 11 12 13 14 15 16 17 18 19 20)
  if(RABBET_PYTHON_IS_FREE_THREADED)
    set(versions 13t 14t 15t 16t 17t 18t 19t 20t)
  endif()
  foreach(minor ${versions})
    list(APPEND rpath
      "$ORIGIN/../lib/python3.${minor}/site-packages/rabbet/lib"
      "$ORIGIN/../local/lib/python3.${minor}/dist-packages/rabbet/lib")
  endforeach()
  list(JOIN rpath ":" rpath)
  install(CODE "
    set(script \"${SKBUILD_SCRIPTS_DIR}/rabbet\")
    file(COPY_FILE \"$<TARGET_FILE:rabbet_command>\" \"\${script}\")
    execute_process(COMMAND ${PATCHELF} --set-rpath \"${rpath}\" \"\${script}\"
      COMMAND_ERROR_IS_FATAL ANY)
    file(GET_RUNTIME_DEPENDENCIES
      LIBRARIES \"$<TARGET_FILE:rabbet_cpu>\" \"$<TARGET_FILE:rabbet>\"
      EXECUTABLES \"$<TARGET_FILE:rabbet_command>\"
      RESOLVED_DEPENDENCIES_VAR needed
      PRE_INCLUDE_REGEXES dnnl gomp protobuf-c libz OpenCL rabbet
      PRE_EXCLUDE_REGEXES .*)
    foreach(library \${needed})
      get_filename_component(name \"\${library}\" NAME)
      if(name MATCHES \"rabbet\")
        continue()
      endif()
      file(REAL_PATH \"\${library}\" real)
      set(copy \"\${CMAKE_INSTALL_PREFIX}/${libdir}/\${name}\")
      file(COPY_FILE \"\${real}\" \"\${copy}\")
      execute_process(COMMAND ${PATCHELF} --set-rpath \"\\\$ORIGIN\" \"\${copy}\"
        COMMAND_ERROR_IS_FATAL ANY)
      # Whose it is, and under which terms, as its Debian package says.
      # The name alone: packages may list /lib where we see /usr/lib.
      get_filename_component(file \"\${real}\" NAME)
      execute_process(COMMAND dpkg-query --search \"*/\${file}\"
        OUTPUT_VARIABLE owner ERROR_QUIET)
      if(owner MATCHES \"^([^:, ]+)\")
        set(terms \"/usr/share/doc/\${CMAKE_MATCH_1}/copyright\")
        if(EXISTS \"\${terms}\")
          file(REAL_PATH \"\${terms}\" terms)
          file(COPY_FILE \"\${terms}\"
            \"\${CMAKE_INSTALL_PREFIX}/${libdir}/\${name}.copyright\")
        endif()
      endif()
    endforeach()
  " COMPONENT runtime)
endif()

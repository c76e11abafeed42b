# The places of files in an installation (`cmake --install`) and in a wheel.
#
#   system   lib/librabbet*.so  bin/rabbet  include/rabbet/  lib/cmake/rabbet/
#   wheel    the same below rabbet/, the command also as a script of the
#            environment, and the libraries that we need and cannot expect to be
#            there (oneDNN, OpenMP, protobuf-c, zlib, cJSON), found by $ORIGIN
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(RABBET_WHEEL)
  set(prefix rabbet/)
  set(libdir rabbet/lib)
  # Wheels hold no symbolic links: pip would make copies of them.
  set(namelink NAMELINK_SKIP)
  set(soname ".so.${PROJECT_VERSION_MAJOR}")
else()
  set(prefix "")
  set(libdir ${CMAKE_INSTALL_LIBDIR})
endif()

install(TARGETS rabbet_runtime rabbet rabbet_pyhost rabbet_headers EXPORT rabbet-targets
  LIBRARY DESTINATION ${libdir} COMPONENT runtime ${namelink}
  INCLUDES DESTINATION ${prefix}include)
install(TARGETS ${RABBET_DEVICES} LIBRARY DESTINATION ${libdir} COMPONENT runtime)
install(TARGETS rabbet_triton LIBRARY
  DESTINATION ${libdir}/${RABBET_TRITON_FOLDER} COMPONENT runtime)
install(TARGETS rabbet_ortep LIBRARY DESTINATION ${libdir}
  COMPONENT runtime)
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
  set(libraries "")
  foreach(library ${name} rabbet_runtime)
    if(RABBET_WHEEL)
      list(APPEND libraries -l:lib${library}${soname})
    else()
      list(APPEND libraries -l${library})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES libraries)
  list(JOIN libraries " " libraries)
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
    set(COMMAND \"$<TARGET_FILE:rabbet_command>\")
    set(SCRIPT \"${SKBUILD_SCRIPTS_DIR}/rabbet\")
    set(SCRIPT_RPATH \"${rpath}\")
    set(LIBRARIES \"$<TARGET_FILE:rabbet_cpu>\" \"$<TARGET_FILE:rabbet>\"
      \"$<TARGET_FILE:rabbet_triton>\")
    set(LIBDIR \"\${CMAKE_INSTALL_PREFIX}/${libdir}\")
    set(PATCHELF \"${PATCHELF}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/bundle.cmake\")
  " COMPONENT runtime)
endif()

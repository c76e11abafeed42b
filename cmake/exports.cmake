# Version scripts: which names a shared library exports, and under which node.
#
#   RABBET_<SOVERSION>           the public functions, listed in src/exports
#   RABBET_PRIVATE_<VERSION>     what Rabbet's own libraries need of each other: libraries
#                                of two versions do not find each other's
#
# Everything else is local. tests/exports/check.py compares this with the headers.

# rabbet_exports(TARGET): of a library that others link.
function(rabbet_exports target)
  set(list ${PROJECT_SOURCE_DIR}/src/exports/lib${target}.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} names)
  list(JOIN names ";\n    " names)
  rabbet_version_script(${target} "RABBET_${PROJECT_VERSION_MAJOR} {
  global:
    ${names};
};
RABBET_PRIVATE_${PROJECT_VERSION} {
  global: rabbet_*;
  local: *;
} RABBET_${PROJECT_VERSION_MAJOR};
")
endfunction()

# rabbet_device_exports(TARGET): of one that the runtime opens.
function(rabbet_device_exports target)
  rabbet_version_script(${target} "RABBET_PRIVATE_${PROJECT_VERSION} {
  global: rabbet_device_abi; rabbet_device_open;
  local: *;
};
${ARGN}")
endfunction()

function(rabbet_version_script target text)
  set(script ${PROJECT_BINARY_DIR}/exports/lib${target}.map)
  file(CONFIGURE OUTPUT ${script} CONTENT "${text}" @ONLY)
  target_link_options(${target} PRIVATE -Wl,--version-script=${script})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
endfunction()

# Completes a wheel's files when it is installed: the command as a script of the
# environment, and the libraries that Rabbet needs and cannot expect to be there. The
# including code sets COMMAND, SCRIPT, SCRIPT_RPATH, LIBRARIES, LIBDIR and PATCHELF.

# bundle_terms(FILE NAME): puts the terms of a library beside it, as its Debian package
# states them, and the GPL where they refer to that.
function(bundle_terms file name)
  # Looked for by its name alone: packages may list /lib where we see /usr/lib.
  get_filename_component(base "${file}" NAME)
  execute_process(COMMAND dpkg-query --search "*/${base}"
    OUTPUT_VARIABLE owner ERROR_QUIET)
  string(REGEX MATCH "^[^:, ]+" owner "${owner}")
  set(terms "/usr/share/doc/${owner}/copyright")
  if(NOT owner OR NOT EXISTS "${terms}")
    message(WARNING "${file} is of no Debian package: its terms, which the wheel "
      "must contain, are to be added as ${LIBDIR}/${name}.copyright")
    return()
  endif()
  file(REAL_PATH "${terms}" terms)
  file(COPY_FILE "${terms}" "${LIBDIR}/${name}.copyright")
  file(STRINGS "${terms}" refers REGEX "common-licenses/GPL-3")
  if(refers)
    file(COPY_FILE /usr/share/common-licenses/GPL-3 "${LIBDIR}/GPL-3")
  endif()
endfunction()

function(bundle_rpath file rpath)
  execute_process(COMMAND ${PATCHELF} --set-rpath "${rpath}" "${file}"
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(COPY_FILE "${COMMAND}" "${SCRIPT}")
bundle_rpath("${SCRIPT}" "${SCRIPT_RPATH}")

file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${LIBRARIES} EXECUTABLES "${COMMAND}"
  RESOLVED_DEPENDENCIES_VAR needed
  PRE_INCLUDE_REGEXES dnnl gomp protobuf-c libz cjson OpenCL rabbet
  PRE_EXCLUDE_REGEXES .*)
list(FILTER needed EXCLUDE REGEX "librabbet")
foreach(library ${needed})
  # The file is named as programs ask for it (its SONAME), without links.
  get_filename_component(name "${library}" NAME)
  file(REAL_PATH "${library}" real)
  file(COPY_FILE "${real}" "${LIBDIR}/${name}")
  bundle_rpath("${LIBDIR}/${name}" "$ORIGIN")
  bundle_terms("${real}" "${name}")
endforeach()

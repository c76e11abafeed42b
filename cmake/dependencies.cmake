# Finds all that a build needs beside a C compiler, and ends with one list of what is
# missing. Python and the ONNX schema are looked for where they are used.
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
include(CheckLibraryExists)
set(missing "")

# rabbet_need(FOUND WHAT PACKAGE): notes what is missing, by Debian's package.
macro(rabbet_need found what package)
  if(NOT ${found})
    string(APPEND missing "\n  ${what} (Debian: ${package})")
  endif()
endmacro()

# oneDNN 3 has another interface.
find_package(OneDNN 2.6...<3 QUIET)
rabbet_need(OneDNN_FOUND "oneDNN 2, from 2.6 on: dnnl.h and libdnnl" libdnnl-dev)
# oneDNN's OpenMP library, whose functions src/device/cpu/openmp.c replaces.
check_library_exists(gomp omp_set_num_threads "" RABBET_HAS_GOMP)
rabbet_need(RABBET_HAS_GOMP "libgomp, GCC's OpenMP library" libgomp1)
find_path(RABBET_XXHASH_INCLUDE xxhash.h)
rabbet_need(RABBET_XXHASH_INCLUDE "xxhash.h" libxxhash-dev)
find_program(PROTOC_C protoc-c)
rabbet_need(PROTOC_C "protoc-c" protobuf-c-compiler)
find_package(PkgConfig QUIET)
rabbet_need(PKG_CONFIG_FOUND "pkg-config" pkg-config)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(PROTOBUF_C QUIET IMPORTED_TARGET libprotobuf-c)
  rabbet_need(PROTOBUF_C_FOUND "protobuf-c" libprotobuf-c-dev)
  pkg_check_modules(ZLIB QUIET IMPORTED_TARGET zlib)
  rabbet_need(ZLIB_FOUND "zlib" zlib1g-dev)
  pkg_check_modules(CJSON QUIET IMPORTED_TARGET libcjson)
  rabbet_need(CJSON_FOUND "cJSON" libcjson-dev)
  if(RABBET_TESTS)
    pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
    rabbet_need(CMOCKA_FOUND "cmocka, for RABBET_TESTS" libcmocka-dev)
  endif()
endif()
if(RABBET_WHEEL)
  # Found anew each time: a wheel must not depend on what an earlier build found.
  find_program(PATCHELF patchelf NO_CACHE)
  rabbet_need(PATCHELF "patchelf, for RABBET_WHEEL" patchelf)
endif()

if(missing)
  message(FATAL_ERROR "Rabbet's build needs what was not found:${missing}\n"
    "Where they are in folders of their own, name these in CMAKE_PREFIX_PATH.")
endif()
message(STATUS "oneDNN ${OneDNN_VERSION}: ${OneDNN_LIBRARY}")

# oneDNN by its header and its library: the CMake package of Debian's build asks for
# OpenCL's headers, which Rabbet has no use for.
#
#   OneDNN::OneDNN, OneDNN_VERSION
find_path(OneDNN_INCLUDE_DIR dnnl.h)
find_library(OneDNN_LIBRARY dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)
if(OneDNN_INCLUDE_DIR)
  find_file(header NAMES oneapi/dnnl/dnnl_version.h dnnl_version.h
    PATHS ${OneDNN_INCLUDE_DIR} NO_DEFAULT_PATH NO_CACHE)
  if(header)
    file(STRINGS ${header} OneDNN_VERSION
      REGEX "^#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
    list(TRANSFORM OneDNN_VERSION REPLACE "^.* " "")
    list(JOIN OneDNN_VERSION "." OneDNN_VERSION)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN
  REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR VERSION_VAR OneDNN_VERSION
  HANDLE_VERSION_RANGE)
if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION ${OneDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
endif()

# Helpers for the layers in src/: each folder is one object library, made of all
# its .c files; tests (*_test.c) lie beside them, an executable each.

# The device libraries that are built for users.
set(RABBET_DEVICES rabbet_cpu)
if(RABBET_CUDA)
  list(APPEND RABBET_DEVICES rabbet_cuda)
endif()

# rabbet_layer(NAME): object library rabbet_layer_NAME from the current folder.
function(rabbet_layer name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  list(FILTER sources EXCLUDE REGEX "_test\\.c$")
  if(NOT sources)  # a layer of headers alone
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.c)
    file(WRITE ${sources} "")
  endif()
  add_library(rabbet_layer_${name} OBJECT ${sources})
  target_include_directories(rabbet_layer_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
endfunction()

# The environment in which device "cuda" is the stand-in of tests/cuda_stand_in.
set(RABBET_STAND_IN_FOLDER ${PROJECT_BINARY_DIR}/tests/cuda_stand_in)
set(RABBET_STAND_IN_ENVIRONMENT
  RABBET_CUDA_DRIVER=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_driver.so
  RABBET_NVRTC=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_nvrtc.so
  RABBET_CUBLASLT=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_cublaslt.so
  RABBET_CUDNN=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_cudnn.so)

# What C tests share.
function(rabbet_test_support)
  if(NOT RABBET_TESTS OR TARGET rabbet_test_support)
    return()
  endif()
  add_library(rabbet_test_support STATIC
    ${PROJECT_SOURCE_DIR}/tests/faults/fault_allocator.c
    ${PROJECT_SOURCE_DIR}/tests/conformance/kernel_case.c)
  target_include_directories(rabbet_test_support PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(rabbet_test_support PUBLIC PkgConfig::CMOCKA pthread m)
endfunction()

# rabbet_layer_tests(LIBRARIES...): every *_test.c of the current folder becomes
# a test linked with these libraries and cmocka; `rabbet_test_environment`, where
# it is set, lists what else of the environment they need.
function(rabbet_layer_tests)
  if(NOT RABBET_TESTS)
    return()
  endif()
  rabbet_test_support()
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.c)
  get_filename_component(layer ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  foreach(test ${tests})
    get_filename_component(name ${test} NAME_WE)
    set(target ${layer}_${name})
    add_executable(${target} ${test})
    target_link_libraries(${target} PRIVATE rabbet_test_support ${ARGN})
    add_test(NAME ${target} COMMAND ${target})
    set_tests_properties(${target} PROPERTIES
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} LABELS unit
      # Threads of tests that run side by side must not spin.
      ENVIRONMENT "OMP_WAIT_POLICY=passive;${rabbet_test_environment}")
  endforeach()
endfunction()

# rabbet_protobuf(TARGET PROTO): C code by protoc-c for a .proto file.
function(rabbet_protobuf target proto)
  get_filename_component(name ${proto} NAME_WE)
  get_filename_component(folder ${proto} DIRECTORY)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${out})
  add_custom_command(
    OUTPUT ${out}/${name}.pb-c.c ${out}/${name}.pb-c.h
    COMMAND ${PROTOC_C} --c_out=${out} -I${folder} ${proto}
    DEPENDS ${proto} VERBATIM)
  target_sources(${target} PRIVATE ${out}/${name}.pb-c.c)
  set_source_files_properties(${out}/${name}.pb-c.c PROPERTIES
    COMPILE_OPTIONS "-Wno-unused-parameter")
  target_include_directories(${target} PRIVATE ${out})
  target_link_libraries(${target} PRIVATE PkgConfig::PROTOBUF_C)
endfunction()

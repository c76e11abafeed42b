# Helpers for the layers in src/: each is one object library, made of all .c files
# of its folder and its rooms; tests (*_test.c) lie beside them, an executable
# each.

# The device libraries that are built for users.
set(RABBET_DEVICES rabbet_cpu)
if(RABBET_CUDA)
  list(APPEND RABBET_DEVICES rabbet_cuda)
endif()

# Triton's backend, below the folder of the libraries.
set(RABBET_TRITON_FOLDER rabbet/triton/rabbet)

# rabbet_files(OUT PATTERN): files of the current folder and of its rooms, which
# are the folders in it, and in these, that have no list of their own.
function(rabbet_files out pattern)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}
    ${CMAKE_CURRENT_SOURCE_DIR}/${pattern}
    ${CMAKE_CURRENT_SOURCE_DIR}/*/${pattern}
    ${CMAKE_CURRENT_SOURCE_DIR}/*/*/${pattern})
  set(found "")
  foreach(file ${files})
    get_filename_component(room ${file} DIRECTORY)
    string(REGEX REPLACE "/.*" "" outer "${room}")
    if(NOT room OR
        NOT (EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/CMakeLists.txt OR
             EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${outer}/CMakeLists.txt))
      list(APPEND found ${file})
    endif()
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# rabbet_sources(OUT): those that are no tests.
function(rabbet_sources out)
  rabbet_files(files *.c)
  list(FILTER files EXCLUDE REGEX "_test\\.c$")
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# rabbet_layer(NAME): object library rabbet_layer_NAME from the current folder and
# its rooms.
function(rabbet_layer name)
  rabbet_sources(sources)
  if(NOT sources)  # a layer of headers alone
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.c)
    file(WRITE ${sources} "")
  endif()
  add_library(rabbet_layer_${name} OBJECT ${sources})
  target_include_directories(rabbet_layer_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
endfunction()

# rabbet_for_size(FILES...): sources of the current folder that are compiled for size, as
# no run of an engine passes through them.
function(rabbet_for_size)
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_OPTIONS "$<$<CONFIG:Release,RelWithDebInfo>:-Os>")
endfunction()

# The environment in which device "cuda" is the stand-in of tests/cuda_stand_in. Trials
# may take long: the host computes what a GPU would, under sanitizers a hundred times as
# slowly, and a choice whose trial was given up would be missing.
set(RABBET_STAND_IN_FOLDER ${PROJECT_BINARY_DIR}/tests/cuda_stand_in)
set(RABBET_STAND_IN_ENVIRONMENT
  RABBET_CUDA_DRIVER=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_driver.so
  RABBET_NVRTC=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_nvrtc.so
  RABBET_CUBLASLT=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_cublaslt.so
  RABBET_CUDNN=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_cudnn.so
  RABBET_NCCL=${RABBET_STAND_IN_FOLDER}/libcuda_stand_in_nccl.so
  RABBET_PROGRAM_CACHE=none
  RABBET_TRIAL_SECONDS=600)

# The library that C tests share.
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

# Tests that take seconds where nothing is compiled yet: they begin before the
# others, also in a first run, so that no processor waits for the last ones.
set(RABBET_LONG_TESTS builder_faults_test cuda_graphs_test
  cuda_pointwise_test cuda_products_gemv_test cuda_products_matmul_tiles_test
  cuda_products_test cuda_programs_kernels_test
  cuda_weight_only_weight_only_test deferred_device_noise_test)

# rabbet_layer_tests(LIBRARIES...): every *_test.c of the current folder and its
# rooms becomes a test linked with these libraries and cmocka;
# `rabbet_test_environment`, where it is set, lists what else of the environment
# they need.
function(rabbet_layer_tests)
  if(NOT RABBET_TESTS)
    return()
  endif()
  rabbet_test_support()
  rabbet_files(tests *_test.c)
  get_filename_component(layer ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  foreach(test ${tests})
    string(REGEX REPLACE "\\.c$" "" name ${test})
    string(REPLACE "/" "_" target ${layer}_${name})
    add_executable(${target} ${test})
    target_link_libraries(${target} PRIVATE rabbet_test_support ${ARGN})
    add_test(NAME ${target} COMMAND ${target})
    # Of interest to the thread sanitizer. Kernels of the CPU run on a team.
    set(labels unit)
    file(STRINGS ${test} starts_threads REGEX pthread_create LIMIT_COUNT 1)
    if(starts_threads OR layer STREQUAL cpu)
      list(APPEND labels threads)
    endif()
    set_tests_properties(${target} PROPERTIES
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} LABELS "${labels}"
      # Threads of tests that run side by side must not spin.
      ENVIRONMENT "OMP_WAIT_POLICY=passive;${rabbet_test_environment}")
    if(target IN_LIST RABBET_LONG_TESTS)
      set_tests_properties(${target} PROPERTIES COST 100)
    endif()
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
    COMPILE_OPTIONS "-Wno-unused-parameter;$<$<CONFIG:Release,RelWithDebInfo>:-Os>")
  target_include_directories(${target} PRIVATE ${out})
  target_link_libraries(${target} PRIVATE PkgConfig::PROTOBUF_C)
endfunction()

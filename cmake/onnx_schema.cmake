# rabbet_find_onnx_schema(OUT): path of onnx-ml.proto, which comes with the
# Python package `onnx` and is not part of this repository.
#
# RABBET_ONNX_PROTO overrides. Otherwise the interpreters looked at are
# Python3_EXECUTABLE, the virtual environment in use, .venv of the checkout and
# python3 on PATH; the first that has the package is taken.
set(RABBET_ONNX_PROTO "" CACHE FILEPATH
  "onnx-ml.proto of the onnx Python package (empty: ask Python)")

function(rabbet_find_onnx_schema out)
  if(RABBET_ONNX_PROTO)
    if(NOT EXISTS ${RABBET_ONNX_PROTO})
      message(FATAL_ERROR
        "RABBET_ONNX_PROTO names '${RABBET_ONNX_PROTO}', which does not exist")
    endif()
    set(${out} ${RABBET_ONNX_PROTO} PARENT_SCOPE)
    return()
  endif()
  find_program(python_on_path NAMES python3 python NO_CACHE)
  set(tried "")
  foreach(python
      ${Python3_EXECUTABLE} $ENV{VIRTUAL_ENV}/bin/python
      ${PROJECT_SOURCE_DIR}/.venv/bin/python ${python_on_path})
    if(NOT EXISTS ${python})
      continue()
    endif()
    # The package is located, not imported: that would need NumPy and time.
    execute_process(
      COMMAND ${python} -c "import importlib.util as u, os; \
print(os.path.join(os.path.dirname(u.find_spec('onnx').origin), \
'onnx-ml.proto'))"
      RESULT_VARIABLE failed OUTPUT_VARIABLE proto ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed AND EXISTS ${proto})
      message(STATUS "ONNX schema: ${proto}")
      set(RABBET_ONNX_PROTO ${proto} CACHE FILEPATH
        "onnx-ml.proto of the onnx Python package (empty: ask Python)" FORCE)
      set(${out} ${proto} PARENT_SCOPE)
      return()
    endif()
    list(APPEND tried ${python})
  endforeach()
  list(JOIN tried ", " tried)
  message(FATAL_ERROR
    "The ONNX schema (onnx-ml.proto) comes from the Python package `onnx`, "
    "which none of these has: ${tried}.\n"
    "Install it (python3 -m venv .venv && .venv/bin/pip install onnx), or name "
    "an interpreter that has it (-DPython3_EXECUTABLE=...) or the file itself "
    "(-DRABBET_ONNX_PROTO=.../onnx/onnx-ml.proto).")
endfunction()

# Writes C arrays with the text of files, for a table of (name, text):
#   cmake -DOUT=x.c -DDEPENDENCIES=x.d -DROOT=dir "-DPREFIX=a/b/" \
#     "-DFILES=a/b/c.cu;..." -P embed.cmake
# FILES are relative to ROOT; what they include is embedded, too. *.cu become
# rabbet_cuda_sources, under their names without PREFIX; all others
# rabbet_cuda_headers, under the names by which they are included. Headers beyond
# PREFIX are shared with C: what such a one includes is for C alone.

# A script has no policies of the project.
cmake_minimum_required(VERSION 3.25)

function(embed table)
  set(rows "")
  set(index 0)
  foreach(name ${ARGN})
    file(READ ${ROOT}/${name} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    file(APPEND ${OUT}
      "static const unsigned char ${table}_${index}[] = {${bytes}0};\n")
    string(REGEX REPLACE "^${PREFIX}(.*\\.cu)$" "\\1" name ${name})
    string(APPEND rows "    {\"${name}\", (const char*)${table}_${index}},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  file(APPEND ${OUT} "const rabbet_cuda_header_t ${table}s[] = {\n${rows}    {0, 0},\n};\n"
    "const size_t ${table}_count = ${index};\n")
endfunction()

# Appends to `found` what a file and its headers include.
function(follow name)
  file(STRINGS ${ROOT}/${name} lines REGEX "^#include \"")
  foreach(line ${lines})
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" header "${line}")
    if(NOT header IN_LIST found)
      list(APPEND found ${header})
      if(header MATCHES "^${PREFIX}")
        follow(${header})
      endif()
    endif()
  endforeach()
  set(found ${found} PARENT_SCOPE)
endfunction()

set(found ${FILES})
foreach(name ${FILES})
  follow(${name})
endforeach()
list(SORT found)
list(TRANSFORM found PREPEND ${ROOT}/ OUTPUT_VARIABLE paths)
list(JOIN paths " " paths)
file(WRITE ${DEPENDENCIES} "${OUT}: ${paths}\n")
set(headers ${found})
list(FILTER headers EXCLUDE REGEX "\\.cu$")
list(FILTER found INCLUDE REGEX "\\.cu$")
file(WRITE ${OUT} "#include \"device/cuda/programs/sources.h\"\n")
embed(rabbet_cuda_source ${found})
embed(rabbet_cuda_header ${headers})

# Writes C arrays with the text of files, for a table of (name, text):
#   cmake -DOUT=x.c -DFOLDER=dir -P embed.cmake
# *.cu become rabbet_cuda_sources, *.cuh rabbet_cuda_headers.
function(embed pattern table)
  file(GLOB files ${FOLDER}/${pattern})
  list(SORT files)
  set(rows "")
  set(index 0)
  foreach(path ${files})
    get_filename_component(name ${path} NAME)
    file(READ ${path} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    file(APPEND ${OUT}
      "static const unsigned char ${table}_${index}[] = {${bytes}0};\n")
    string(APPEND rows "    {\"${name}\", (const char*)${table}_${index}},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  file(APPEND ${OUT} "const rabbet_cuda_header_t ${table}s[] = {\n${rows}    {0, 0},\n};\n"
    "const size_t ${table}_count = ${index};\n")
endfunction()
file(WRITE ${OUT} "#include \"device/cuda/kernels/sources.h\"\n")
embed(*.cu rabbet_cuda_source)
embed(*.cuh rabbet_cuda_header)

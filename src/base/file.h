// Files: mapped for reading, replaced atomically when written.
#ifndef RABBET_SRC_BASE_FILE_H_
#define RABBET_SRC_BASE_FILE_H_

#include "rabbet/allocator.h"

// Read-only contents of a file, mapped; counted, thread-safe.
typedef struct rabbet_file_map_t rabbet_file_map_t;

// NOT_FOUND or IO with the system's reason. An empty file gives size 0.
RABBET_PRIVATE_API rabbet_status_t
rabbet_file_map_create(const char* path, rabbet_allocator_t allocator,
                       rabbet_file_map_t** out_map);
RABBET_PRIVATE_API void rabbet_file_map_retain(rabbet_file_map_t* map);
RABBET_PRIVATE_API void rabbet_file_map_release(rabbet_file_map_t* map);
RABBET_PRIVATE_API const uint8_t* rabbet_file_map_data(
    const rabbet_file_map_t* map);
RABBET_PRIVATE_API size_t rabbet_file_map_size(const rabbet_file_map_t* map);

typedef struct rabbet_span_t {
  const void* data;
  size_t size;
} rabbet_span_t;

// Writes the pieces one after another to a temporary file beside `path` and
// renames it: readers see the old contents or the new, never a part.
RABBET_PRIVATE_API rabbet_status_t rabbet_file_write(const char* path,
                                                     const rabbet_span_t* parts,
                                                     size_t part_count);
// Folder part of `path` ("." if none) joined with `name`; absolute names stay.
RABBET_PRIVATE_API rabbet_status_t
rabbet_path_join_beside(const char* path, const char* name,
                        rabbet_allocator_t allocator, char** out_path);

#endif  // RABBET_SRC_BASE_FILE_H_

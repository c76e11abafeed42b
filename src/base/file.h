// Files: mapped for reading, replaced atomically when written.
#ifndef RABBET_SRC_BASE_FILE_H_
#define RABBET_SRC_BASE_FILE_H_

#include "rabbet/allocator.h"

// Read-only contents of a file, mapped; counted, thread-safe.
typedef struct rabbet_file_map_t rabbet_file_map_t;

// NOT_FOUND or IO with the system's reason. An empty file gives size 0. Nothing
// but a regular file is read, and a pipe does not block.
RABBET_PRIVATE_API rabbet_status_t
rabbet_file_map_create(const char* path, rabbet_allocator_t allocator,
                       rabbet_file_map_t** out_map);
RABBET_PRIVATE_API void rabbet_file_map_retain(rabbet_file_map_t* map);
RABBET_PRIVATE_API void rabbet_file_map_release(rabbet_file_map_t* map);
RABBET_PRIVATE_API const uint8_t* rabbet_file_map_data(
    const rabbet_file_map_t* map);
RABBET_PRIVATE_API size_t rabbet_file_map_size(const rabbet_file_map_t* map);
// Whether this process wrote the contents, where no other could change them.
RABBET_PRIVATE_API bool rabbet_file_map_is_own(const rabbet_file_map_t* map);
// The process gives whole pages within the range back, for the time being: they
// come from the file again when they are read. Nothing happens if the range is
// not in the map, or if the map is not one of a file. `map` may be NULL.
RABBET_PRIVATE_API void rabbet_file_map_drop(const rabbet_file_map_t* map,
                                             const void* data, size_t size);

// Takes a block that is freed with rabbet_free_aligned(allocator, data,
// alignment).
RABBET_PRIVATE_API rabbet_status_t rabbet_file_map_take_block(
    void* data, size_t size, size_t alignment, rabbet_allocator_t allocator,
    rabbet_file_map_t** out_map);
// Maps an open file that has no name; `path` is for errors.
rabbet_status_t rabbet_file_map_descriptor(int file, const char* path,
                                           rabbet_allocator_t allocator,
                                           rabbet_file_map_t** out_map);
// DATA_LOSS if the file was changed or cut off since it was mapped: its pages
// would be other ones, or end the process when they are read (SIGBUS). A file
// that was replaced or removed stays as it was mapped.
RABBET_PRIVATE_API rabbet_status_t
rabbet_file_map_check(const rabbet_file_map_t* map);

typedef struct rabbet_span_t {
  const void* data;
  size_t size;
} rabbet_span_t;

// Writes the pieces one after another to a temporary file beside `path` and
// renames it: readers see the old contents or the new, never a part. An
// existing file keeps its mode, a link stays a link; devices and pipes with a
// reader are written directly. Temporary files of writers that died in this
// folder are removed.
RABBET_PRIVATE_API rabbet_status_t rabbet_file_write(const char* path,
                                                     const rabbet_span_t* parts,
                                                     size_t part_count);
// A file that is being written.
typedef struct rabbet_file_out_t rabbet_file_out_t;
RABBET_PRIVATE_API rabbet_status_t rabbet_file_out_write(rabbet_file_out_t* out,
                                                         const void* data,
                                                         size_t size);
// Whether bytes can be overwritten: not in a pipe.
RABBET_PRIVATE_API bool rabbet_file_out_is_seekable(
    const rabbet_file_out_t* out);
// Reserves space, so that a full disk is found before anything is written.
RABBET_PRIVATE_API rabbet_status_t
rabbet_file_out_reserve(rabbet_file_out_t* out, uint64_t size);
// Overwrites the first bytes.
RABBET_PRIVATE_API rabbet_status_t
rabbet_file_out_rewrite(rabbet_file_out_t* out, const void* data, size_t size);
// As rabbet_file_write, of contents that `fill` writes.
typedef struct rabbet_file_fill_t {
  void* context;
  rabbet_status_t (*fill)(void* context, rabbet_file_out_t* out);
} rabbet_file_fill_t;
RABBET_PRIVATE_API rabbet_status_t
rabbet_file_write_by(const char* path, rabbet_file_fill_t fill);

// A file without a name in $TMPDIR, or else /tmp, which lives until the last
// map of it goes. IO if there is no room for `size` bytes.
RABBET_PRIVATE_API rabbet_status_t rabbet_file_out_create_temporary(
    uint64_t size, rabbet_allocator_t allocator, rabbet_file_out_t** out_out);
// Maps the bytes that were written to it.
RABBET_PRIVATE_API rabbet_status_t
rabbet_file_out_map(const rabbet_file_out_t* out, rabbet_file_map_t** out_map);
RABBET_PRIVATE_API void rabbet_file_out_destroy(rabbet_file_out_t* out);

// Makes the new contents from the old ones ({NULL, 0} where there is no file);
// *out_new is freed with `allocator`.
typedef struct rabbet_file_change_t {
  void* context;
  rabbet_status_t (*make)(void* context, rabbet_span_t old,
                          rabbet_allocator_t allocator, rabbet_span_t* out_new);
} rabbet_file_change_t;
// Replaces the contents by the result of `change`. Threads and processes that
// update one file take turns. Devices and pipes are not read.
RABBET_PRIVATE_API rabbet_status_t
rabbet_file_update(const char* path, rabbet_file_change_t change,
                   rabbet_allocator_t allocator);

// Folder part of `path` ("." if none) joined with `name`; absolute names stay.
RABBET_PRIVATE_API rabbet_status_t
rabbet_path_join_beside(const char* path, const char* name,
                        rabbet_allocator_t allocator, char** out_path);
// The path without links, absolute.
RABBET_PRIVATE_API rabbet_status_t rabbet_path_resolve(
    const char* path, rabbet_allocator_t allocator, char** out_path);
// Of two resolved paths: whether `path` lies in `folder` or in one below it.
RABBET_PRIVATE_API bool rabbet_path_is_below(const char* path,
                                             const char* folder);
// The failure of a system call on `path`: "cannot open 'x': ...". `error` is
// its errno.
RABBET_PRIVATE_API rabbet_status_t rabbet_file_error(const char* what,
                                                     const char* path,
                                                     int error);

#endif  // RABBET_SRC_BASE_FILE_H_

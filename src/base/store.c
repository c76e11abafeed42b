// One file for each key, named by it. Files appear under their names when they
// are whole, so that readers need no lock; two writers of a key write the same.
#define _GNU_SOURCE
#include "base/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache_folder.h"
#include "base/vec.h"

#define STORE_MAGIC UINT64_C(0x31304d4152474f52)  // "ROGRAM01"
#define STORE_NEW ".new-"                         // of files that are written
#define STORE_MIB 1024
enum {
  STORE_NAME = 33,
  // A file that is read is marked as used at most this often, in seconds.
  STORE_USED = 24 * 3600,
  // A file that is not whole after this time, in seconds, never will be.
  STORE_LEFT = 3600,
};

struct rabbet_store_t {
  rabbet_allocator_t allocator;
  rabbet_logger_t logger;
  pthread_mutex_t lock;  // guards the next three until the folder is open
  bool is_open;          // or cannot be: folder.file < 0
  uint64_t limit;        // bytes
  rabbet_cache_folder_t folder;
  atomic_bool has_grown;
  atomic_uint written;
};

typedef struct store_header_t {
  uint64_t magic;
  rabbet_hash_t key;
  uint64_t size;
  uint64_t hash;  // of the contents
} store_header_t;

// ---- The folder ------------------------------------------------------------

rabbet_status_t rabbet_store_create(rabbet_allocator_t allocator,
                                    rabbet_logger_t logger,
                                    rabbet_store_t** out_store) {
  rabbet_store_t* store = NULL;
  *out_store = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*store), (void**)&store));
  store->allocator = allocator;
  store->logger = logger;
  store->folder.file = -1;
  pthread_mutex_init(&store->lock, NULL);
  *out_store = store;
  return rabbet_ok();
}

static void store_open(rabbet_store_t* store) {
  store->is_open = true;
  rabbet_cache_folder_open("RABBET_PROGRAM_CACHE", "programs", &store->folder);
  store->limit =
      rabbet_cache_limit("RABBET_PROGRAM_CACHE_MIB", STORE_MIB, store->logger);
  if (!store->folder.reason) return;
  rabbet_log(store->logger, RABBET_SEVERITY_INFO,
             "compiled programs are not kept in '%s': %s", store->folder.path,
             store->folder.reason);
}

// Whether the store keeps anything.
static bool store_is_on(rabbet_store_t* store) {
  if (!store) return false;
  pthread_mutex_lock(&store->lock);
  if (!store->is_open) store_open(store);
  pthread_mutex_unlock(&store->lock);
  return store->folder.file >= 0;
}

// ---- Forgetting ------------------------------------------------------------

typedef struct store_file_t {
  char name[STORE_NAME];
  struct timespec used;
  uint64_t size;
} store_file_t;

static int store_compare(const void* a, const void* b) {
  const struct timespec *x = &((const store_file_t*)a)->used,
                        *y = &((const store_file_t*)b)->used;
  if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
  return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

// Whether a file is the store's: a folder may have files of others.
static bool store_is_name(const char* name) {
  size_t size = strlen(name);
  return size == STORE_NAME - 1 && strspn(name, "0123456789abcdef") == size;
}

// Lists the files, and removes those of writers that died.
static rabbet_status_t store_list(const rabbet_store_t* store,
                                  store_file_t** out_files, size_t* out_count) {
  RABBET_VEC(store_file_t) files = {0};
  rabbet_status_t status = rabbet_ok();
  int again =
      openat(store->folder.file, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = again < 0 ? NULL : fdopendir(again);
  if (!entries && again >= 0) close(again);
  time_t now = time(NULL);
  for (struct dirent* entry;
       rabbet_is_ok(status) && entries && (entry = readdir(entries));) {
    const char* name = entry->d_name;
    bool is_new = strncmp(name, STORE_NEW, strlen(STORE_NEW)) == 0;
    store_file_t file;
    struct stat info;
    if ((!is_new && !store_is_name(name)) ||
        fstatat(store->folder.file, name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    if (is_new) {
      if (now - info.st_mtime > STORE_LEFT)
        unlinkat(store->folder.file, name, 0);
      continue;
    }
    memcpy(file.name, name, STORE_NAME);
    file.used = info.st_mtim;
    file.size = (uint64_t)info.st_size;
    status = RABBET_VEC_PUSH(store->allocator, &files, file);
  }
  if (entries) closedir(entries);
  *out_files = files.data;
  *out_count = files.count;
  return status;
}

// Down to three quarters of the limit, so that not every build lists all files
// only to remove a few.
static void store_trim(rabbet_store_t* store) {
  store_file_t* files = NULL;
  size_t count = 0;
  uint64_t total = 0;
  rabbet_status_ignore(store_list(store, &files, &count));
  for (size_t i = 0; i < count; ++i)
    total += files[i].size;
  if (total > store->limit) {
    qsort(files, count, sizeof(*files), store_compare);
    for (size_t i = 0; i < count && total > store->limit / 4 * 3; ++i) {
      if (unlinkat(store->folder.file, files[i].name, 0) == 0)
        total -= files[i].size;
    }
  }
  rabbet_free(store->allocator, files);
}

void rabbet_store_destroy(rabbet_store_t* store) {
  if (!store) return;
  if (atomic_load(&store->has_grown)) store_trim(store);
  if (store->folder.file >= 0) close(store->folder.file);
  pthread_mutex_destroy(&store->lock);
  rabbet_free(store->allocator, store);
}

// ---- Finding ---------------------------------------------------------------

// Returns the bytes read, fewer at the file's end.
static size_t store_read(int file, void* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    ssize_t got = read(file, (char*)data + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += (size_t)got;
  }
  return done;
}

static void store_damaged(const rabbet_store_t* store, const char* name) {
  rabbet_log(store->logger, RABBET_SEVERITY_WARNING,
             "the compiled program '%s/%s' is damaged; it is made again",
             store->folder.path, name);
  unlinkat(store->folder.file, name, 0);
}

static rabbet_status_t store_take(int file, rabbet_hash_t key,
                                  const struct stat* info,
                                  rabbet_allocator_t allocator, void** out_data,
                                  size_t* out_size) {
  store_header_t header;
  void* data = NULL;
  uint64_t room = (uint64_t)info->st_size - sizeof(header);
  if (info->st_size < (off_t)sizeof(header) ||
      store_read(file, &header, sizeof(header)) != sizeof(header) ||
      header.magic != STORE_MAGIC || header.key.high != key.high ||
      header.key.low != key.low || header.size != room || room == 0)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator, (size_t)room, &data));
  if (store_read(file, data, (size_t)room) == room &&
      rabbet_hash64(data, (size_t)room) == header.hash) {
    *out_data = data;
    *out_size = (size_t)room;
    return rabbet_ok();
  }
  rabbet_free(allocator, data);
  return rabbet_ok();
}

rabbet_status_t rabbet_store_find(rabbet_store_t* store, rabbet_hash_t key,
                                  rabbet_allocator_t allocator, void** out_data,
                                  size_t* out_size) {
  char name[STORE_NAME];
  struct stat info;
  *out_data = NULL;
  *out_size = 0;
  if (!store_is_on(store)) return rabbet_ok();
  rabbet_hash_print(key, name);
  int file = openat(store->folder.file, name,
                    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return rabbet_ok();
  rabbet_status_t status = rabbet_ok();
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode)) {
    status = store_take(file, key, &info, allocator, out_data, out_size);
    if (rabbet_is_ok(status) && !*out_data) store_damaged(store, name);
    if (*out_data && time(NULL) - info.st_mtime > STORE_USED)
      futimens(file, NULL);
  }
  close(file);
  return status;
}

// ---- Keeping ---------------------------------------------------------------

// Returns 0 or an errno.
static int store_write(int file, const void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t put = write(file, (const char*)data + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put < 0 ? errno : EIO;
    done += (size_t)put;
  }
  return 0;
}

static store_header_t store_header(rabbet_hash_t key,
                                   const rabbet_span_t* parts,
                                   size_t part_count) {
  store_header_t header = {.magic = STORE_MAGIC, .key = key};
  rabbet_hash_stream_t stream;
  rabbet_hash_stream_begin(&stream);
  for (size_t i = 0; i < part_count; ++i) {
    rabbet_hash_stream_add(&stream, parts[i].data, parts[i].size);
    header.size += parts[i].size;
  }
  header.hash = rabbet_hash_stream_end(&stream);
  return header;
}

void rabbet_store_put(rabbet_store_t* store, rabbet_hash_t key,
                      const rabbet_span_t* parts, size_t part_count) {
  char name[STORE_NAME], temporary[64];
  if (!store_is_on(store)) return;
  const store_header_t header = store_header(key, parts, part_count);
  rabbet_hash_print(key, name);
  // Another process may write here, and this one through another store.
  snprintf(temporary, sizeof(temporary), STORE_NEW "%ld-%p-%u", (long)getpid(),
           (void*)store, atomic_fetch_add(&store->written, 1));
  int file = openat(store->folder.file, temporary,
                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  int error = file < 0 ? errno : store_write(file, &header, sizeof(header));
  for (size_t i = 0; !error && i < part_count; ++i)
    error = store_write(file, parts[i].data, parts[i].size);
  if (file >= 0 && close(file) != 0 && !error) error = errno;
  if (!error &&
      renameat(store->folder.file, temporary, store->folder.file, name) != 0)
    error = errno;
  if (!error) {
    atomic_store(&store->has_grown, true);
    return;
  }
  if (file >= 0) unlinkat(store->folder.file, temporary, 0);
  rabbet_log(store->logger, RABBET_SEVERITY_INFO,
             "a compiled program is not kept in '%s': %s", store->folder.path,
             strerror(error));
}

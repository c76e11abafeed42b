// Files are replaced as a whole: written under a temporary name beside their
// own, then renamed.
//
// A writer holds a lock on its temporary file until it has been renamed, and
// the system gives the lock up when the writer dies, however it dies: a
// temporary file whose lock can be had was left behind and is removed. Process
// numbers would not tell, as several machines or containers may share a folder.
#define _GNU_SOURCE
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"

#define RABBET_TEMPORARY_PREFIX ".rabbet-"
#define RABBET_TEMPORARY_SUFFIX ".tmp"
// Names that are tried; only leftovers that cannot be removed take any.
enum { RABBET_TEMPORARY_TRIES = 100 };
enum { RABBET_LINKS = 40 };
// Updates take milliseconds; a process that keeps a lock longer hangs or is
// stopped.
#define RABBET_LOCK_NS ((int64_t)30 * 1000000000)
#define RABBET_LOCK_POLL_NS 5000000

// ---- Bytes -----------------------------------------------------------------

struct rabbet_file_out_t {
  int file;
  const char* path;  // for errors
  bool is_seekable;
  rabbet_allocator_t allocator;  // of a file without a name
};

rabbet_status_t rabbet_file_out_write(rabbet_file_out_t* out, const void* data,
                                      size_t size) {
  const char* at = data;
  while (size > 0) {
    ssize_t written = write(out->file, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return rabbet_file_error("write", out->path, written < 0 ? errno : EIO);
    at += written;
    size -= (size_t)written;
  }
  return rabbet_ok();
}

bool rabbet_file_out_is_seekable(const rabbet_file_out_t* out) {
  return out->is_seekable;
}

rabbet_status_t rabbet_file_out_reserve(rabbet_file_out_t* out, uint64_t size) {
  if (!out->is_seekable || size == 0 || size > INT64_MAX) return rabbet_ok();
  int result = 0;
  do {
    result = fallocate(out->file, FALLOC_FL_KEEP_SIZE, 0, (off_t)size);
  } while (result != 0 && errno == EINTR);
  // Other errors: the file system cannot reserve.
  return result != 0 && (errno == ENOSPC || errno == EFBIG)
             ? rabbet_file_error("write", out->path, errno)
             : rabbet_ok();
}

rabbet_status_t rabbet_file_out_rewrite(rabbet_file_out_t* out,
                                        const void* data, size_t size) {
  const char* from = data;
  assert(out->is_seekable);
  for (size_t at = 0; at < size;) {
    ssize_t written = pwrite(out->file, from + at, size - at, (off_t)at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return rabbet_file_error("write", out->path, written < 0 ? errno : EIO);
    at += (size_t)written;
  }
  return rabbet_ok();
}

// A file to write: its name as the caller knows it, its contents, and why
// writing them failed.
typedef struct file_job_t {
  const char* path;
  rabbet_file_fill_t fill;
  rabbet_status_t status;
} file_job_t;

// Returns 0, or an errno (ECANCELED) beside the job's status.
static int file_fill(int file, bool is_seekable, file_job_t* job) {
  rabbet_file_out_t out = {
      .file = file, .path = job->path, .is_seekable = is_seekable};
  job->status = job->fill.fill(job->fill.context, &out);
  return rabbet_is_ok(job->status) ? 0 : ECANCELED;
}

// ---- Files without a name --------------------------------------------------

static int nameless_open(const char* folder) {
  int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // Errors of file systems and kernels that have no such files.
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
    return file;
  char name[PATH_MAX];
  int size = snprintf(name, sizeof(name), "%s/.rabbet-XXXXXX", folder);
  if (size < 0 || (size_t)size >= sizeof(name)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  file = mkostemp(name, O_CLOEXEC);
  if (file >= 0) unlink(name);
  return file;
}

rabbet_status_t rabbet_file_out_create_temporary(uint64_t size,
                                                 rabbet_allocator_t allocator,
                                                 rabbet_file_out_t** out_out) {
  const char* folder = getenv("TMPDIR");
  *out_out = NULL;
  rabbet_file_out_t* out = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*out), (void**)&out));
  out->allocator = allocator;
  out->path = folder && *folder ? folder : "/tmp";
  out->is_seekable = true;
  out->file = nameless_open(out->path);
  rabbet_status_t status =
      out->file < 0 ? rabbet_file_error("write a file in", out->path, errno)
                    : rabbet_file_out_reserve(out, size);
  if (rabbet_is_ok(status))
    *out_out = out;
  else
    rabbet_file_out_destroy(out);
  return status;
}

rabbet_status_t rabbet_file_out_map(const rabbet_file_out_t* out,
                                    rabbet_file_map_t** out_map) {
  return rabbet_file_map_descriptor(out->file, out->path, out->allocator,
                                    out_map);
}

void rabbet_file_out_destroy(rabbet_file_out_t* out) {
  if (!out) return;
  if (out->file >= 0) close(out->file);
  rabbet_free(out->allocator, out);
}

// ---- Temporary files -------------------------------------------------------

// The name still stands for the open file.
static bool file_is_named(int file, int folder, const char* name, int flags) {
  struct stat open_info, named;
  return fstat(file, &open_info) == 0 &&
         fstatat(folder, name, &named, flags) == 0 &&
         open_info.st_dev == named.st_dev && open_info.st_ino == named.st_ino;
}

static bool is_temporary(const char* name) {
  size_t prefix = strlen(RABBET_TEMPORARY_PREFIX), size = strlen(name);
  size_t suffix = strlen(RABBET_TEMPORARY_SUFFIX);
  if (strncmp(name, RABBET_TEMPORARY_PREFIX, prefix) != 0) return false;
  size_t middle = strspn(name + prefix, "0123456789-");
  return middle > 0 && prefix + middle + suffix == size &&
         strcmp(name + prefix + middle, RABBET_TEMPORARY_SUFFIX) == 0;
}

// Some network file systems lock only files open for writing, and a file that
// was to replace one that is read-only may be opened for reading alone.
static int leftover_open(int folder, const char* name) {
  const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int file = openat(folder, name, O_WRONLY | flags);
  return file < 0 && errno == EACCES ? openat(folder, name, O_RDONLY | flags)
                                     : file;
}

static void remove_leftover(int folder, const char* name) {
  int file = leftover_open(folder, name);
  if (file < 0) return;
  struct stat info;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
      flock(file, LOCK_EX | LOCK_NB) == 0 &&
      file_is_named(file, folder, name, AT_SYMLINK_NOFOLLOW))
    unlinkat(folder, name, 0);
  close(file);
}

// Failures do not matter: the next writer tries again.
static void remove_leftovers(int folder) {
  int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = again < 0 ? NULL : fdopendir(again);
  if (!entries && again >= 0) close(again);
  for (struct dirent* entry; entries && (entry = readdir(entries));) {
    if (is_temporary(entry->d_name)) remove_leftover(folder, entry->d_name);
  }
  if (entries) closedir(entries);
}

static int flock_blocking(int file) {
  int result = 0;
  do {
    result = flock(file, LOCK_EX);
  } while (result != 0 && errno == EINTR);
  return result;
}

// Opens and locks a new file in `folder`; mode bits follow the umask. Returns a
// descriptor, or -1 with errno.
static int temporary_open(int folder, char name[64]) {
  static atomic_uint counter;
  for (int attempt = 0; attempt < RABBET_TEMPORARY_TRIES; ++attempt) {
    unsigned number =
        atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
    snprintf(name, 64, RABBET_TEMPORARY_PREFIX "%ld-%u" RABBET_TEMPORARY_SUFFIX,
             (long)getpid(), number);
    int file =
        openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno != EEXIST) return -1;
    if (file < 0) continue;
    // Where a file system has no locks, nobody finds leftovers either. Between
    // open and lock another writer may have taken the file for one.
    if (flock_blocking(file) != 0 ||
        file_is_named(file, folder, name, AT_SYMLINK_NOFOLLOW))
      return file;
    close(file);
  }
  errno = EEXIST;
  return -1;
}

// ---- Replacing -------------------------------------------------------------

// A file that is replaced gives its permissions on, before there is anything to
// read. Returns 0 or an errno.
static int temporary_take_mode(int file, int folder, const char* name) {
  struct stat old, new;
  if (fstatat(folder, name, &old, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  // File systems without permissions show all files alike and refuse changes.
  if (fstat(file, &new) == 0 && (new.st_mode & 0777) == (old.st_mode & 0777))
    return 0;
  return fchmod(file, old.st_mode & 0777) == 0 ? 0 : errno;
}

// Writes the temporary file and gives it its name, in `folder`. Returns 0 or an
// errno.
static int temporary_finish(int file, int folder, const char* temporary,
                            const char* name, file_job_t* job) {
  int error = temporary_take_mode(file, folder, name);
  if (!error) error = file_fill(file, true, job);
  // Without this a power cut could leave the new name on unwritten blocks.
  if (!error && fsync(file) != 0 && errno != EINVAL) error = errno;
  if (!error && renameat(folder, temporary, folder, name) != 0) error = errno;
  return error;
}

// `path` is no link.
static int file_replace(const char* path, file_job_t* job) {
  char folder_name[PATH_MAX], temporary[64];
  const char* slash = strrchr(path, '/');
  size_t size = slash ? (size_t)(slash - path) + 1 : 0;
  if (size >= sizeof(folder_name)) return ENAMETOOLONG;
  memcpy(folder_name, size ? path : ".", size ? size : 1);
  folder_name[size ? size : 1] = '\0';
  int folder = open(folder_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  remove_leftovers(folder);
  int file = temporary_open(folder, temporary);
  int error = file < 0 ? errno : 0;
  if (!error) {
    error = temporary_finish(file, folder, temporary, slash ? slash + 1 : path,
                             job);
    if (error) unlinkat(folder, temporary, 0);
    if (close(file) != 0 && !error) error = errno;
  }
  close(folder);
  return error;
}

// Writes to a device or pipe, which no file may replace. A pipe without
// a reader is an error (ENXIO) and does not block.
static int file_write_through(const char* path, file_job_t* job) {
  int file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return errno;
  // Once it is open, a slow reader is waited for.
  int flags = fcntl(file, F_GETFL);
  int error = fcntl(file, F_SETFL, flags & ~O_NONBLOCK) < 0 ? errno : 0;
  if (!error) error = file_fill(file, false, job);
  if (close(file) != 0 && !error) error = errno;
  return error;
}

// Writes the end of a chain of links into `target`, also if it does not exist
// yet. Returns 0 or an errno.
static int path_follow(const char* path, char target[PATH_MAX]) {
  size_t size = strlen(path);
  if (size >= PATH_MAX) return ENAMETOOLONG;
  memcpy(target, path, size + 1);
  for (int links = 0; links < RABBET_LINKS; ++links) {
    struct stat info;
    char link[PATH_MAX], joined[PATH_MAX];
    if (lstat(target, &info) != 0 || !S_ISLNK(info.st_mode)) return 0;
    ssize_t length = readlink(target, link, sizeof(link) - 1);
    if (length < 0) return errno;
    link[length] = '\0';
    const char* slash = strrchr(target, '/');
    int folder = slash && link[0] != '/' ? (int)(slash - target) + 1 : 0;
    int total =
        snprintf(joined, sizeof(joined), "%.*s%s", folder, target, link);
    if (total < 0 || total >= PATH_MAX) return ENAMETOOLONG;
    memcpy(target, joined, (size_t)total + 1);
  }
  return ELOOP;
}

// Devices, pipes, and files that have lost their name (/dev/stdout of one).
static bool file_has_no_name(const struct stat* info, const char* target) {
  struct stat named;
  return !S_ISREG(info->st_mode) || stat(target, &named) != 0 ||
         named.st_dev != info->st_dev || named.st_ino != info->st_ino;
}

rabbet_status_t rabbet_file_write_by(const char* path,
                                     rabbet_file_fill_t fill) {
  struct stat info;
  file_job_t job = {.path = path, .fill = fill, .status = rabbet_ok()};
  char target[PATH_MAX];
  int error = path_follow(path, target);
  bool exists = !error && stat(path, &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) error = EISDIR;
  if (!error)
    error = exists && file_has_no_name(&info, target)
                ? file_write_through(path, &job)
                : file_replace(target, &job);
  if (!rabbet_is_ok(job.status)) return job.status;
  if (error == ENXIO)
    return RABBET_STATUS(RABBET_STATUS_IO,
                         "cannot write '%s': it is a pipe that nobody reads",
                         path);
  return error ? rabbet_file_error("write", path, error) : rabbet_ok();
}

typedef struct file_parts_t {
  const rabbet_span_t* parts;
  size_t count;
} file_parts_t;

static rabbet_status_t file_fill_parts(void* context, rabbet_file_out_t* out) {
  const file_parts_t* parts = context;
  for (size_t i = 0; i < parts->count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_file_out_write(out, parts->parts[i].data, parts->parts[i].size));
  return rabbet_ok();
}

rabbet_status_t rabbet_file_write(const char* path, const rabbet_span_t* parts,
                                  size_t part_count) {
  file_parts_t all = {parts, part_count};
  return rabbet_file_write_by(
      path, (rabbet_file_fill_t){.context = &all, .fill = file_fill_parts});
}

// ---- Updating --------------------------------------------------------------

// Returns 0, EBUSY, or an errno where there are no locks.
static int file_write_flock(int file) {
  int64_t end = rabbet_time_ns() + RABBET_LOCK_NS;
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return errno;
    if (rabbet_time_ns() > end) return EBUSY;
    nanosleep(&(struct timespec){.tv_nsec = RABBET_LOCK_POLL_NS}, NULL);
  }
  return 0;
}

// Opens and locks the file that `path` names once the lock is had: the writer
// before may have replaced the one that was opened. Puts a descriptor into
// *out_file, or -1 where nothing can be locked (a device, a pipe).
static int file_lock(const char* path, int* out_file) {
  *out_file = -1;
  for (;;) {
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) return 0;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (file < 0 && (errno == EACCES || errno == EROFS))
      file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return errno;
    int error = file_write_flock(file);
    // On a file system without locks the last writer wins.
    bool done =
        error != EBUSY && (error || file_is_named(file, AT_FDCWD, path, 0));
    if (done) *out_file = file;
    if (done) return 0;
    close(file);
    if (error) return error;
  }
}

static rabbet_status_t file_change(const char* path,
                                   rabbet_file_change_t change, bool is_file,
                                   rabbet_allocator_t allocator) {
  rabbet_file_map_t* map = NULL;
  rabbet_span_t old = {NULL, 0}, new = {NULL, 0};
  if (is_file) {
    RABBET_RETURN_IF_ERROR(rabbet_file_map_create(path, allocator, &map));
    old = (rabbet_span_t){rabbet_file_map_data(map), rabbet_file_map_size(map)};
  }
  rabbet_status_t status = change.make(change.context, old, allocator, &new);
  if (rabbet_is_ok(status)) status = rabbet_file_write(path, &new, 1);
  rabbet_free(allocator, (void*)(uintptr_t) new.data);
  rabbet_file_map_release(map);
  return status;
}

rabbet_status_t rabbet_file_update(const char* path,
                                   rabbet_file_change_t change,
                                   rabbet_allocator_t allocator) {
  int lock = -1;
  int error = file_lock(path, &lock);
  if (error == EBUSY)
    return RABBET_STATUS(
        RABBET_STATUS_IO,
        "cannot write '%s': another process has kept it locked "
        "for 30 s",
        path);
  if (error) return rabbet_file_error("write", path, error);
  rabbet_status_t status = file_change(path, change, lock >= 0, allocator);
  if (lock < 0) return status;
  // A process forked off meanwhile has the descriptor, and with it the lock.
  flock(lock, LOCK_UN);
  close(lock);
  return status;
}

// Runs a fuzz target on files, for compilers without libFuzzer: each argument
// is a file, or a folder whose files are taken in order of name.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static int replay_file(const char* path) {
  FILE* file = fopen(path, "rb");
  uint8_t* data = NULL;
  size_t size = 0, room = 0, read = 0;
  if (!file) {
    perror(path);
    return 1;
  }
  do {
    size += read;
    if (size == room) data = realloc(data, room = 2 * room + 4096);
    read = data ? fread(data + size, 1, room - size, file) : 0;
  } while (read > 0);
  fclose(file);
  // An exact copy, so that a sanitizer sees each byte read past the end.
  uint8_t* exact = malloc(size ? size : 1);
  if (data && exact) memcpy(exact, data, size);
  if (exact) LLVMFuzzerTestOneInput(exact, size);
  free(exact);
  free(data);
  return 0;
}

static int replay_folder(const char* path, int* count) {
  struct dirent** names = NULL;
  int failed = 0, found = scandir(path, &names, NULL, alphasort);
  if (found < 0) {
    perror(path);
    return 1;
  }
  for (int i = 0; i < found; ++i) {
    char name[4096];
    snprintf(name, sizeof(name), "%s/%s", path, names[i]->d_name);
    if (names[i]->d_name[0] != '.') {
      failed += replay_file(name);
      ++*count;
    }
    free(names[i]);
  }
  free(names);
  return failed;
}

int main(int argc, char** argv) {
  int failed = 0, count = 0;
  for (int i = 1; i < argc; ++i) {
    struct stat info;
    if (stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode)) {
      failed += replay_folder(argv[i], &count);
    } else {
      failed += replay_file(argv[i]);
      ++count;
    }
  }
  printf("%d inputs\n", count);
  return failed > 0 || count == 0;
}

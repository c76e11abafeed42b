// plan_corpus FOLDER: writes each sample plan, whole and its META section
// alone.
#include "plan_bytes.h"
#include "plan_samples.h"

static int write_file(const char* folder, const char* name, const char* suffix,
                      const void* data, size_t size) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s.%s", folder, name, suffix);
  FILE* file = fopen(path, "wb");
  bool ok = file && fwrite(data, 1, size, file) == size;
  if (file) ok = fclose(file) == 0 && ok;
  if (!ok) perror(path);
  return ok ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  int failed = 0;
  for (size_t s = 0; s < SAMPLE_COUNT; ++s) {
    maker_t maker;
    void* data = NULL;
    size_t size = 0;
    maker_begin(&maker, rabbet_allocator_system());
    samples[s].make(&maker);
    maker_write(&maker, rabbet_allocator_system(), &data, &size);
    maker_end(&maker);
    plan_bytes_t parts = plan_bytes_split(data);
    failed += write_file(argv[1], samples[s].name, "whole", data, size);
    failed += write_file(argv[1], samples[s].name, "meta",
                         parts.section[PLAN_META], parts.size[PLAN_META]);
    rabbet_free_aligned(rabbet_allocator_system(), data, RABBET_PLAN_ALIGNMENT);
  }
  return failed > 0;
}

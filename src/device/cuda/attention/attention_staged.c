#include "device/cuda/attention/attention_staged.h"

#include <assert.h>

// Constants of attention/staged.cu.
enum {
  GROUP_ROWS = 64,
  GROUP_THREADS = 128,
  PART = 64,
  SLOTS = 2,
  PANEL = 64,
  LINE = 128,
  REGISTER_WIDTH = 128,
  SURVEY_THREADS = 128,
  BARRIER_BYTES = (4 * SLOTS + 1) * 16
};

static int64_t staged_rows(const rabbet_attention_staged_t* staged) {
  return (int64_t)GROUP_ROWS * staged->groups;
}

static bool staged_in_registers(const rabbet_attention_staged_t* staged) {
  return staged->width <= REGISTER_WIDTH;
}

// Shared memory of a block, in bytes: tiles of keys and values, queries that
// registers do not hold, and barriers.
static int64_t staged_shared(const rabbet_attention_staged_t* staged) {
  int64_t panels = rabbet_ceildiv(staged->width, (int64_t)PANEL);
  int64_t queries = staged_in_registers(staged) ? 0 : staged_rows(staged);
  return panels * (2 * SLOTS * staged->keys + queries) * LINE + BARRIER_BYTES;
}

// Whether the tile is the largest for which registers suffice: those of a large
// one only where threads take another's (setmaxnreg).
static bool staged_suits(const rabbet_cuda_device_t* device,
                         const rabbet_attention_staged_t* staged) {
  bool takes = device->major == 9 && device->minor == 0;
  return (staged->keys > PART) == (takes && staged_in_registers(staged));
}

// Blocks of one group where there are too few of two for all multiprocessors.
bool rabbet_attention_staged_wanted(const rabbet_cuda_device_t* device,
                                    const rabbet_attention_staged_t* staged,
                                    const rabbet_attention_views_t* views) {
  enum { FEW = 16 };
  int64_t rows = views->y.dims[2];
  int64_t pairs = views->outside * views->y.dims[0] * views->y.dims[1] *
                  rabbet_ceildiv(rows, (int64_t)(2 * GROUP_ROWS));
  return rows > FEW && views->k.dims[2] > FEW && staged_suits(device, staged) &&
         rows > staged_rows(staged) - GROUP_ROWS &&
         (staged->groups > 1 || pairs < 2 * device->multiprocessors) &&
         staged_shared(staged) <= device->shared_bytes;
}

rabbet_status_t rabbet_attention_staged_permit(
    const rabbet_cuda_device_t* device, const rabbet_attention_staged_t* staged,
    CUfunction attend) {
  return rabbet_cuda_launch_permit(device, attend, staged_shared(staged));
}

// Whether two neighbouring keys of the mask are aligned in every row.
static bool staged_has_pairs(const rabbet_attention_view_t* mask) {
  bool even = mask->strides[3] == 1 && mask->dims[3] % 2 == 0;
  for (int i = 0; i < 3; ++i)
    even = even && mask->strides[i] % 2 == 0;
  return even;
}

size_t rabbet_attention_staged_launch(const rabbet_attention_staged_t* staged,
                                      const rabbet_attention_views_t* views,
                                      bool has_mask, attend_t* parameters,
                                      rabbet_cuda_launch_t* attend,
                                      rabbet_cuda_launch_t* survey) {
  attend_t* p = parameters;
  const rabbet_attention_view_t* mask = &views->mask;
  int64_t rows = rabbet_ceildiv((int64_t)p->rows, staged_rows(staged));
  int64_t keys = rabbet_ceildiv((int64_t)p->keys, (int64_t)staged->keys);
  attend->grid[0] = (unsigned)views->y.dims[1];
  attend->grid[1] = (unsigned)rows;
  attend->grid[2] = (unsigned)(views->outside * views->y.dims[0]);
  attend->block[0] = (unsigned)(GROUP_THREADS * (staged->groups + 1));
  attend->block[1] = attend->block[2] = 1;
  attend->shared_bytes = (unsigned)staged_shared(staged);
  if (!has_mask) return 0;
  int64_t heads = mask->dims[1], batch = mask->dims[0];
  assert(heads > 0 && batch > 0);
  p->pairs = staged_has_pairs(mask);
  p->survey_heads = (uint32_t)heads;
  p->survey[0] = batch == 1 ? 0 : (uint32_t)(heads * rows * keys);
  p->survey[1] = heads == 1 ? 0 : (uint32_t)(rows * keys);
  p->survey[2] = (uint32_t)keys;
  survey->grid[0] = (unsigned)keys;
  survey->grid[1] = (unsigned)rows;
  survey->grid[2] = (unsigned)(heads * batch);
  survey->block[0] = SURVEY_THREADS;
  survey->block[1] = survey->block[2] = 1;
  return (size_t)(batch * heads * rows * keys);
}

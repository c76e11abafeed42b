// Non-maximum suppression, for its reference and for devices' kernels.
#ifndef RABBET_SRC_OPS_SELECTION_NMS_H_
#define RABBET_SRC_OPS_SELECTION_NMS_H_

#include <string.h>

#include "ops/op.h"

enum {
  RABBET_NMS_BOXES = 0,
  RABBET_NMS_SCORES = 1,
  RABBET_NMS_MOST = 2,
  RABBET_NMS_IOU_THRESHOLD = 3,
  RABBET_NMS_SCORE_THRESHOLD = 4,
  RABBET_NMS_INPUTS = 5,
};
enum { RABBET_NMS_INDICES = 0, RABBET_NMS_COUNT = 1 };

// Strides are in elements; box_class is 0 where classes share boxes.
typedef struct rabbet_nms_t {
  int64_t batch, boxes, classes;
  int64_t score_batch, score_box, score_class;
  int64_t box_batch, box_box, box_class;
  bool center;    // boxes are (centre, size), else two corners
  bool by_class;  // rows are in the order of classes, then of scores
  int64_t limit;  // candidates per batch element, best first; 0: all
  int64_t most;   // maximum number of selected boxes per class
} rabbet_nms_t;

// For known shapes; OUT_OF_RANGE if they do not match. `most` is that input's
// value, or NULL.
RABBET_PRIVATE_API rabbet_status_t rabbet_nms_plan(
    const rabbet_attr_t* attrs, size_t attr_count, const rabbet_dims_t* boxes,
    const rabbet_dims_t* scores, const void* most, rabbet_dtype_t most_dtype,
    rabbet_nms_t* out_nms);

// ---- Scores ----------------------------------------------------------------

// Sort key: larger for a higher score, and for the lower index of equal scores.
// Never 0.
static inline uint64_t rabbet_nms_key(float score, int64_t index) {
  uint32_t bits = 0;
  score += 0.0f;  // -0 is 0
  memcpy(&bits, &score, sizeof(bits));
  bits = bits >> 31 ? ~bits : bits | 0x80000000u;
  return (uint64_t)bits << 32 | (uint32_t) ~(uint32_t)index;
}
static inline int64_t rabbet_nms_index(uint64_t key) {
  return (uint32_t) ~(uint32_t)key;
}

// ---- Boxes -----------------------------------------------------------------

typedef struct rabbet_nms_box_t {
  float low[2], high[2];
} rabbet_nms_box_t;

static inline rabbet_nms_box_t rabbet_nms_box(const float at[4], bool center) {
  rabbet_nms_box_t box;
  for (int i = 0; i < 2; ++i) {
    float a = at[i], b = at[i + 2];
    if (center) {
      float half = b / 2;
      b = a + half;
      a = a - half;
    }
    box.low[i] = center || a < b ? a : b;
    box.high[i] = center || a < b ? b : a;
  }
  return box;
}

// Whether the boxes' intersection over union exceeds the threshold.
static inline bool rabbet_nms_overlap(const rabbet_nms_box_t* a,
                                      const rabbet_nms_box_t* b,
                                      float threshold) {
  float side[2];
  for (int i = 0; i < 2; ++i) {
    float low = a->low[i] > b->low[i] ? a->low[i] : b->low[i];
    float high = a->high[i] < b->high[i] ? a->high[i] : b->high[i];
    if (high <= low) return false;
    side[i] = high - low;
  }
  float shared = side[0] * side[1];
  float area_a = (a->high[0] - a->low[0]) * (a->high[1] - a->low[1]);
  float area_b = (b->high[0] - b->low[0]) * (b->high[1] - b->low[1]);
  float both = area_a + area_b - shared;
  if (shared <= 0 || area_a <= 0 || area_b <= 0 || both <= 0) return false;
  return shared / both > threshold;
}

#endif  // RABBET_SRC_OPS_SELECTION_NMS_H_

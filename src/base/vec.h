// A growing array of plain elements.
//
//   typedef RABBET_VEC(rabbet_layer_t*) rabbet_layer_vec_t;
//   rabbet_layer_vec_t layers = {0};
//   status = RABBET_VEC_PUSH(allocator, &layers, layer);
//   for (size_t i = 0; i < layers.count; ++i) use(layers.data[i]);
//   rabbet_vec_free(allocator, &layers);
#ifndef RABBET_SRC_BASE_VEC_H_
#define RABBET_SRC_BASE_VEC_H_

#include "rabbet/allocator.h"

#define RABBET_VEC(type) \
  struct {               \
    type* data;          \
    size_t count;        \
    size_t capacity;     \
  }

// Makes room for `extra` more elements; contents are kept.
#define RABBET_VEC_RESERVE(allocator, vec, extra)                         \
  rabbet_vec_reserve((allocator), (void**)&(vec)->data, &(vec)->capacity, \
                     (vec)->count, (extra), sizeof(*(vec)->data))

// Appends a value; evaluates to a status.
#define RABBET_VEC_PUSH(allocator, vec, ...)     \
  ({                                             \
    rabbet_status_t rabbet_vec_status_ =         \
        RABBET_VEC_RESERVE(allocator, vec, 1);   \
    if (rabbet_is_ok(rabbet_vec_status_))        \
      (vec)->data[(vec)->count++] = __VA_ARGS__; \
    rabbet_vec_status_;                          \
  })

#define rabbet_vec_free(allocator, vec)    \
  do {                                     \
    rabbet_free((allocator), (vec)->data); \
    (vec)->data = NULL;                    \
    (vec)->count = (vec)->capacity = 0;    \
  } while (0)

RABBET_PRIVATE_API rabbet_status_t
rabbet_vec_reserve(rabbet_allocator_t allocator, void** data, size_t* capacity,
                   size_t count, size_t extra, size_t element_size);

#endif  // RABBET_SRC_BASE_VEC_H_

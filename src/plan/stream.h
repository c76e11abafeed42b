// A plan's file, from its first byte to its last, in pieces.
#ifndef RABBET_SRC_PLAN_STREAM_H_
#define RABBET_SRC_PLAN_STREAM_H_

#include "base/hash.h"
#include "plan.pb-c.h"
#include "plan/plan.h"
#include "plan/plan_file.h"

typedef struct rabbet_plan_stream_t {
  const rabbet_plan_contents_t* contents;
  const Rabbet__Plan__Meta* meta;
  const char* device;  // text of the section DEVICE
  uint64_t weights_size;
  rabbet_arena_t* arena;
  const rabbet_plan_sink_t* sink;
  // Of rabbet_plan_stream: whether bytes go to the sink or are only hashed, how
  // many there were, and the hash of the present section.
  bool writes;
  uint64_t at;
  rabbet_hash_stream_t hash;
} rabbet_plan_stream_t;

// The plan's messages, in the arena (write_meta.c).
rabbet_status_t rabbet_plan_write_meta(const rabbet_plan_t* plan,
                                       rabbet_arena_t* arena,
                                       Rabbet__Plan__Meta* meta);

rabbet_status_t rabbet_plan_stream(rabbet_plan_stream_t* stream,
                                   uint64_t* out_size);

#endif  // RABBET_SRC_PLAN_STREAM_H_

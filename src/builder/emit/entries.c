// Profiles and the sequences that they run.

#include <assert.h>
#include <string.h>

#include "builder/emit/emitter.h"

// An entry and all that it calls, which stand behind it.
typedef struct block_t {
  size_t first, count;
} block_t;

static block_t block_at(const rabbet_emitter_t* emitters, size_t count,
                        size_t first) {
  block_t block = {.first = first, .count = 1};
  assert(first < count && emitters[first].from->profiles);
  while (first + block.count < count &&
         !emitters[first + block.count].from->profiles)
    ++block.count;
  return block;
}

rabbet_status_t rabbet_emit_entries(rabbet_emitter_t* emitters, size_t count) {
  rabbet_plan_t* plan = emitters[0].plan;
  int32_t* entries = NULL;
  plan->profile_count = 0;
  for (size_t i = 0; i < count; ++i)
    if (emitters[i].from->profiles)
      plan->profile_count += emitters[i].sequence->profile_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, plan->profile_count, sizeof(*entries), (void**)&entries));
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0;
         emitters[i].from->profiles && k < emitters[i].sequence->profile_count;
         ++k) {
      assert((size_t)emitters[i].from->profiles[k] < plan->profile_count);
      entries[emitters[i].from->profiles[k]] = (int32_t)i;
    }
  plan->entries = entries;
  return rabbet_ok();
}

// ---- Equal entries ----------------------------------------------------------

static rabbet_status_t hash_sequences(rabbet_emitter_t* emitters,
                                      size_t count) {
  block_t block = {.first = 0, .count = 0};
  for (size_t i = 0; i < count; ++i) {
    if (i == block.first + block.count) block = block_at(emitters, count, i);
    RABBET_RETURN_IF_ERROR(rabbet_plan_hash_sequence(
        emitters[0].plan, i, block.first, &emitters[i].hash));
  }
  return rabbet_ok();
}

static bool block_is_equal(const rabbet_emitter_t* emitters, block_t a,
                           block_t b) {
  bool equal = a.count == b.count;
  for (size_t i = 0; i < a.count && equal; ++i)
    equal = rabbet_hash_compare(emitters[a.first + i].hash,
                                emitters[b.first + i].hash) == 0;
  return equal;
}

// The ranges of two sequences in the order of the plan's profiles.
static rabbet_status_t join_ranges(const rabbet_plan_t* plan, block_t a,
                                   block_t b, rabbet_plan_sequence_t* to,
                                   const rabbet_plan_sequence_t* from) {
  size_t inputs = to->input_count, left = 0, right = 0;
  size_t count = to->profile_count + from->profile_count;
  rabbet_plan_range_t* joined = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &to->plan->arena, count * inputs + 1, sizeof(*joined), (void**)&joined));
  for (size_t p = 0; p < plan->profile_count; ++p) {
    bool first = (size_t)plan->entries[p] == a.first;
    if (!first && (size_t)plan->entries[p] != b.first) continue;
    size_t at = first ? left++ : right++;
    if (inputs > 0)
      memcpy(joined + (left + right - 1) * inputs,
             (first ? to : from)->profiles + at * inputs,
             inputs * sizeof(*joined));
  }
  assert(left + right == count);
  to->profiles = joined;
  to->profile_count = count;
  return rabbet_ok();
}

// Steps that call sequences behind a block, which are `count` places earlier
// now.
static void move_calls(const rabbet_plan_sequence_t* sequence, size_t behind,
                       size_t count) {
  for (size_t s = 0; s < sequence->step_count; ++s)
    for (size_t k = 0; k < sequence->steps[s].call_count; ++k) {
      // The emitter made them.
      rabbet_plan_call_t* call =
          (rabbet_plan_call_t*)(uintptr_t)&sequence->steps[s].calls[k];
      if ((size_t)call->sequence >= behind) call->sequence -= (int32_t)count;
    }
}

static void drop_block(rabbet_emitter_t* emitters, size_t count, block_t a,
                       block_t block) {
  rabbet_plan_t* plan = emitters[0].plan;
  size_t behind = block.first + block.count;
  int32_t* entries = (int32_t*)(uintptr_t)plan->entries;  // of this file
  for (size_t p = 0; p < plan->profile_count; ++p) {
    if ((size_t)entries[p] == block.first) entries[p] = (int32_t)a.first;
    if ((size_t)entries[p] >= behind) entries[p] -= (int32_t)block.count;
  }
  for (size_t i = block.first; i < behind; ++i)
    rabbet_expr_graph_destroy(plan->sequences[i].graph);
  for (size_t i = behind; i < count; ++i) {
    plan->sequences[i - block.count] = plan->sequences[i];
    emitters[i - block.count] = emitters[i];
    emitters[i - block.count].sequence = &plan->sequences[i - block.count];
  }
  plan->sequence_count -= block.count;
  for (size_t i = block.first; i < plan->sequence_count; ++i)
    move_calls(&plan->sequences[i], behind, block.count);
}

// *out_joined: the block is gone.
static rabbet_status_t join_block(rabbet_emitter_t* emitters, size_t count,
                                  block_t block, bool* out_joined) {
  rabbet_plan_t* plan = emitters[0].plan;
  *out_joined = false;
  for (size_t i = 0; i < block.first;) {
    block_t a = block_at(emitters, count, i);
    *out_joined = block_is_equal(emitters, a, block);
    if (*out_joined) {
      for (size_t k = 0; k < a.count; ++k)
        RABBET_RETURN_IF_ERROR(join_ranges(plan, a, block,
                                           &plan->sequences[a.first + k],
                                           &plan->sequences[block.first + k]));
      drop_block(emitters, count, a, block);
      return rabbet_ok();
    }
    i += a.count;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_emit_join_entries(rabbet_emitter_t* emitters,
                                         size_t* count) {
  if (block_at(emitters, *count, 0).count == *count) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(hash_sequences(emitters, *count));
  for (size_t i = 0; i < *count;) {
    block_t block = block_at(emitters, *count, i);
    bool joined = false;
    RABBET_RETURN_IF_ERROR(join_block(emitters, *count, block, &joined));
    if (joined)
      *count -= block.count;
    else
      i += block.count;
  }
  return rabbet_ok();
}

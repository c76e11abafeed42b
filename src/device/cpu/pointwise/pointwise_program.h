// From a group of element-wise layers to a program of the pointwise machine.
#ifndef RABBET_SRC_DEVICE_CPU_POINTWISE_POINTWISE_PROGRAM_H_
#define RABBET_SRC_DEVICE_CPU_POINTWISE_POINTWISE_PROGRAM_H_

#include "device/cpu/pointwise/pointwise_vm.h"
#include "device/kernel.h"

// How a boundary input is read: element by element, or one element per row.
typedef enum rabbet_pw_access_t {
  RABBET_PW_STREAM = 0,
  RABBET_PW_CELL = 1,
} rabbet_pw_access_t;

// A compiled program. Bases of the frame are boundary inputs, boundary outputs,
// then slots; each slot is a tile.
typedef struct rabbet_pw_program_t {
  rabbet_pw_lane_t lane;
  int input_count, output_count, slot_count;
  rabbet_pw_insn_t* insns;
  size_t insn_count;
} rabbet_pw_program_t;

// The lane type for the group; false if the machine cannot compute the group.
bool rabbet_pw_lane(const rabbet_group_t* group, rabbet_pw_lane_t* out_lane);
// Whether each operator of the group has an instruction.
bool rabbet_pw_supports(const rabbet_group_t* group, rabbet_pw_lane_t lane);
// `access` says how each boundary input is read. The result is freed by
// rabbet_pw_program_free.
rabbet_status_t rabbet_pw_compile(const rabbet_group_t* group,
                                  const rabbet_pw_access_t* access,
                                  rabbet_allocator_t allocator,
                                  rabbet_pw_program_t* out_program);
void rabbet_pw_program_free(rabbet_allocator_t allocator,
                            rabbet_pw_program_t* program);

#endif  // RABBET_SRC_DEVICE_CPU_POINTWISE_POINTWISE_PROGRAM_H_

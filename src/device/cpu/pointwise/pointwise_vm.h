// The machine that runs chains of element-wise operators in one pass.
//
// A program is a list of instructions in threaded code: each ends by calling
// the next. A tile of eight vector registers is handed from one to the next as
// arguments, which the x86-64 calling convention keeps in registers, so that a
// chain costs an instruction or two per vector and operator and touches memory
// only for its operands. (Threaded code: Bell, CACM 16(6), 1973.)
#ifndef RABBET_SRC_DEVICE_CPU_POINTWISE_POINTWISE_VM_H_
#define RABBET_SRC_DEVICE_CPU_POINTWISE_POINTWISE_VM_H_

#include <stdint.h>

// Lanes in which a program computes. FLOAT also holds HALF, BF16, BOOL (0 or 1)
// and quantized numbers of 8 bits; the others hold their own type and BOOL.
typedef enum rabbet_pw_lane_t {
  RABBET_PW_FLOAT = 0,
  RABBET_PW_INT32 = 1,
  RABBET_PW_INT64 = 2,
  RABBET_PW_DOUBLE = 3,
  RABBET_PW_LANE_COUNT = 4,
} rabbet_pw_lane_t;

// Operators on the accumulator. Where the second operand of a binary operator
// comes from is the instruction's form.
typedef enum rabbet_pw_op_t {
#define RABBET_PW_OP(name) RABBET_PW_##name,
#include "device/cpu/pointwise/pointwise_ops.def"
#undef RABBET_PW_OP
  RABBET_PW_OP_COUNT,
} rabbet_pw_op_t;

typedef enum rabbet_pw_form_t {
  RABBET_PW_ACC_TILE = 0,    // acc = acc op tile
  RABBET_PW_ACC_CELL = 1,    // acc = acc op (one element for all)
  RABBET_PW_TILE_ACC = 2,    // acc = tile op acc
  RABBET_PW_CELL_ACC = 3,    // acc = (one element for all) op acc
  RABBET_PW_FORM_COUNT = 4,  // unary operators have the first form only
} rabbet_pw_form_t;

// Forms of the operators with two operands besides the accumulator.
typedef enum rabbet_pw_fused_form_t {
  RABBET_PW_FUSED_CELL = 1,        // bit: the first operand is one element
  RABBET_PW_FUSED_OTHER_CELL = 2,  // bit: the second is
} rabbet_pw_fused_form_t;

typedef struct rabbet_pw_insn_t {
  void (*run)(void);  // cast by the machine to its own type
  int32_t operand;    // position in the frame's bases
  int32_t other;      // second operand of SELECT, PROD_SUM and so on
  double alpha, beta;
} rabbet_pw_insn_t;

// The operands of a thread: addresses of the present tile of each.
typedef struct rabbet_pw_frame_t {
  char** bases;
} rabbet_pw_frame_t;

// A machine for one instruction set.
typedef struct rabbet_pw_machine_t {
  int tile[RABBET_PW_LANE_COUNT];  // elements
  // NULL: the instruction does not exist.
  void (*ops[RABBET_PW_LANE_COUNT][RABBET_PW_OP_COUNT][RABBET_PW_FORM_COUNT])(
      void);
  void (*run[RABBET_PW_LANE_COUNT])(const rabbet_pw_insn_t* program,
                                    const rabbet_pw_frame_t* frame);
} rabbet_pw_machine_t;

// For the processor at hand.
const rabbet_pw_machine_t* rabbet_pw_machine(void);

extern const rabbet_pw_machine_t rabbet_pw_machine_baseline;
extern const rabbet_pw_machine_t rabbet_pw_machine_avx2;
extern const rabbet_pw_machine_t rabbet_pw_machine_avx512;

#endif  // RABBET_SRC_DEVICE_CPU_POINTWISE_POINTWISE_VM_H_

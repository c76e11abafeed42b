#include "device/cpu/dnnl/fused.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void rabbet_dnnl_fused_take_bias(rabbet_dnnl_fused_t* fused,
                                 const rabbet_group_t* group,
                                 const rabbet_dims_t* dims,
                                 const rabbet_dims_t* expected) {
  rabbet_epilogue_t* e = &fused->epilogue;
  if (fused->bias >= 0 || e->count == 0 || !e->items[0].is_binary ||
      e->items[0].binary != RABBET_DNNL_ADD ||
      !group->values[e->items[0].operand].constant ||
      !rabbet_dims_equal(&dims[e->items[0].operand], expected)) {
    return;
  }
  fused->bias = e->items[0].operand;
  --e->count;
  memmove(e->items, e->items + 1, sizeof(e->items[0]) * (size_t)e->count);
}

void rabbet_dnnl_fused_find_sum(rabbet_dnnl_fused_t* fused,
                                const rabbet_group_t* group,
                                const rabbet_dims_t* dims) {
  const rabbet_epilogue_t* e = &fused->epilogue;
  fused->sum_item = -1;
  for (int i = 0; i < e->count; ++i) {
    const rabbet_epilogue_item_t* item = &e->items[i];
    if (!item->is_binary || item->binary != RABBET_DNNL_ADD ||
        group->values[item->operand].constant || item->operand == fused->src ||
        item->operand == fused->weights || item->operand == fused->bias ||
        !rabbet_dims_equal(&dims[item->operand], &dims[e->result])) {
      continue;
    }
    fused->sum_item = i;
    // Another item with this operand would read it after it was overwritten.
    for (int j = 0; j < e->count; ++j) {
      if (j != i && e->items[j].is_binary &&
          e->items[j].operand == item->operand) {
        fused->sum_item = -1;
      }
    }
    return;
  }
}

// The spec with the epilogue; item `sum_item` (or -1) adds the contents of DST.
static rabbet_dnnl_spec_t fused_spec(const rabbet_dnnl_fused_t* fused,
                                     int sum_item) {
  assert(sum_item < fused->epilogue.count);
  rabbet_dnnl_spec_t spec = fused->spec;
  spec.post_count = fused->epilogue.count;
  for (int i = 0; i < spec.post_count; ++i) {
    const rabbet_epilogue_item_t* item = &fused->epilogue.items[i];
    rabbet_dnnl_post_t* post = &spec.posts[i];
    *post = (rabbet_dnnl_post_t){
        .kind = i == sum_item     ? RABBET_DNNL_POST_SUM
                : item->is_binary ? RABBET_DNNL_POST_BINARY
                                  : RABBET_DNNL_POST_FUNCTION,
        .function = item->function,
        .alpha = item->alpha,
        .beta = item->beta,
        .binary = item->binary,
        .operand = fused->operands[i],
    };
  }
  return spec;
}

void rabbet_dnnl_fused_tensors(const rabbet_dnnl_fused_t* fused,
                               const rabbet_group_t* group,
                               const rabbet_dims_t* dims, rabbet_dtype_t dtype,
                               rabbet_format_t in, rabbet_format_t out,
                               rabbet_type_format_t* out_tensors) {
  const rabbet_epilogue_t* e = &fused->epilogue;
  rabbet_network_tensors(group, out_tensors);
  for (size_t i = 0; i < group->input_count; ++i) {
    if (!group->values[group->inputs[i]].constant && dtype != RABBET_DTYPE_NONE)
      out_tensors[i].dtype = dtype;
    if (group->inputs[i] == fused->src) out_tensors[i].format = in;
  }
  for (int i = 0; i < e->count; ++i) {
    if (!e->items[i].is_binary ||
        !rabbet_dims_equal(&dims[e->items[i].operand], &dims[e->result]) ||
        group->values[e->items[i].operand].constant) {
      continue;
    }
    out_tensors[rabbet_group_input_of(group, e->items[i].operand)].format = out;
  }
  out_tensors[group->input_count].format = out;
  if (dtype != RABBET_DTYPE_NONE) out_tensors[group->input_count].dtype = dtype;
}

// ---- Proposing -------------------------------------------------------------

#define RABBET_DNNL_FOUND_MAX 32

typedef struct found_t {
  int32_t id;
  char name[40];
  bool adds_operand, adds_in_place;  // kinds of addition that it supports
} found_t;

typedef struct found_list_t {
  found_t found[RABBET_DNNL_FOUND_MAX];
  int count;
  bool in_place;  // whether the listed kernels write in place
} found_list_t;

static rabbet_status_t found_add(
    void* context, const rabbet_dnnl_implementation_t* implementation) {
  found_list_t* list = context;
  if (implementation->is_reference) return rabbet_ok();
  int i = 0;
  while (i < list->count && list->found[i].id != implementation->id)
    ++i;
  if (i == RABBET_DNNL_FOUND_MAX) return rabbet_ok();
  found_t* found = &list->found[i];
  if (i == list->count) {
    ++list->count;
    found->id = implementation->id;
    snprintf(found->name, sizeof(found->name), "%s", implementation->name);
  }
  *(list->in_place ? &found->adds_in_place : &found->adds_operand) = true;
  return rabbet_ok();
}

// Leaves out implementations that are never the fastest if a better one exists:
// code for older instruction sets, and convolutions by im2col, whose epilogues
// are scalar code.
static bool is_worth(const rabbet_dnnl_fused_t* fused, const found_list_t* list,
                     int i, int optimization_level) {
  const char* name = list->found[i].name;
  bool copies =
      strstr(name, "x64:gemm") && fused->spec.kind == RABBET_DNNL_CONVOLUTION;
  if (optimization_level >= 5) return true;
  if (copies && fused->epilogue.count > 0) return false;
  if (i == 0) return true;
  if (strstr(name, "sse41")) return false;
  if (strstr(name, "avx2") && rabbet_cpu_isa() >= RABBET_CPU_AVX512)
    return false;
  return optimization_level >= 2 && !copies;
}

static rabbet_status_t fused_offer(const rabbet_dnnl_fused_t* fused,
                                   const rabbet_dnnl_fused_offer_t* offer,
                                   const found_t* found) {
  const rabbet_group_t* group = offer->propose->group;
  int32_t in_place = -1;
  rabbet_candidate_t candidate = {
      .kernel = offer->kernel,
      .tactic = offer->tactic | found->id,
      .tensors = offer->tensors,
  };
  if (fused->sum_item >= 0 && found->adds_in_place) {
    candidate.tactic |= RABBET_DNNL_TACTIC_IN_PLACE;
    assert(fused->epilogue.items[fused->sum_item].is_binary);
    in_place = rabbet_group_input_of(
        group, fused->epilogue.items[fused->sum_item].operand);
    candidate.in_place = &in_place;
  }
  snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "%s%s",
           offer->prefix, found->name);
  return rabbet_offer(offer->propose, offer->sink, &candidate);
}

rabbet_status_t rabbet_dnnl_fused_propose(
    const rabbet_dnnl_fused_t* fused, const rabbet_dnnl_fused_offer_t* offer) {
  rabbet_dnnl_t* dnnl = rabbet_cpu_dnnl(offer->propose->device);
  found_list_t list = {.in_place = false};
  rabbet_dnnl_spec_t spec = fused_spec(fused, -1);
  rabbet_status_t status = rabbet_dnnl_enumerate(
      dnnl, &spec, offer->propose->threads, found_add, &list);
  if (rabbet_is_ok(status) && fused->sum_item >= 0) {
    list.in_place = true;
    spec = fused_spec(fused, fused->sum_item);
    status = rabbet_dnnl_enumerate(dnnl, &spec, offer->propose->threads,
                                   found_add, &list);
  }
  for (int i = 0; rabbet_is_ok(status) && i < list.count; ++i) {
    if (is_worth(fused, &list, i, offer->propose->optimization_level))
      status = fused_offer(fused, offer, &list.found[i]);
  }
  return status;
}

// ---- Compiling -------------------------------------------------------------

typedef struct fused_run_t {
  const rabbet_dnnl_fused_t* fused;
  rabbet_dnnl_program_t* program;
  rabbet_dnnl_ref_t src, bias, dst;
  rabbet_dnnl_ref_t operands[RABBET_DNNL_MAX_POSTS];
} fused_run_t;

// Binds the arguments and appends the step. Takes ownership of the primitive,
// on failure too.
static rabbet_status_t fused_append(const fused_run_t* run,
                                    rabbet_dnnl_when_t when,
                                    rabbet_dnnl_primitive_t* take_primitive,
                                    bool in_place) {
  const rabbet_dnnl_fused_t* fused = run->fused;
  rabbet_dnnl_binding_t bindings[4 + RABBET_DNNL_MAX_POSTS];
  int count = 0;
  bindings[count++] = (rabbet_dnnl_binding_t){RABBET_DNNL_SRC, run->src};
  bindings[count++] = (rabbet_dnnl_binding_t){RABBET_DNNL_DST, run->dst};
  if (fused->bias >= 0)
    bindings[count++] = (rabbet_dnnl_binding_t){RABBET_DNNL_BIAS, run->bias};
  rabbet_dnnl_binding_t* weights = &bindings[count++];
  weights->arg = RABBET_DNNL_WEIGHTS;
  rabbet_status_t status =
      rabbet_dnnl_weights(run->program, fused->weights, &fused->weights_layout,
                          take_primitive, RABBET_DNNL_WEIGHTS, &weights->ref);
  if (!rabbet_is_ok(status)) {
    rabbet_dnnl_primitive_destroy(take_primitive);
    return status;
  }
  for (int i = 0; i < fused->epilogue.count; ++i) {
    if (fused->epilogue.items[i].is_binary &&
        !(in_place && i == fused->sum_item)) {
      bindings[count++] =
          (rabbet_dnnl_binding_t){RABBET_DNNL_POST(i), run->operands[i]};
    }
  }
  assert((size_t)count <= sizeof(bindings) / sizeof(bindings[0]));
  return rabbet_dnnl_run(run->program, when, take_primitive, bindings, count);
}

// The tactic's implementation, or NULL if oneDNN lacks it for these shapes.
static rabbet_status_t fused_try(const fused_run_t* run, bool in_place,
                                 rabbet_dnnl_primitive_t** out_primitive) {
  const rabbet_dnnl_kernel_t* kernel = run->program->kernel;
  rabbet_dnnl_spec_t spec =
      fused_spec(run->fused, in_place ? run->fused->sum_item : -1);
  rabbet_status_t status = rabbet_dnnl_primitive_create(
      rabbet_cpu_dnnl(kernel->device), &spec,
      kernel->tactic & RABBET_DNNL_TACTIC_IMPLEMENTATION,
      run->program->shapes->threads, kernel->allocator, out_primitive);
  rabbet_status_code_t code = rabbet_status_code(status);
  if (code != RABBET_STATUS_NOT_FOUND && code != RABBET_STATUS_UNSUPPORTED)
    return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

// The tactic's implementation, else the library's first choice for these
// shapes.
static rabbet_status_t fused_make(const fused_run_t* run, bool in_place,
                                  rabbet_dnnl_when_t when) {
  rabbet_dnnl_spec_t spec =
      fused_spec(run->fused, in_place ? run->fused->sum_item : -1);
  rabbet_dnnl_primitive_t* primitive = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_make(
      run->program, &spec,
      run->program->kernel->tactic & RABBET_DNNL_TACTIC_IMPLEMENTATION,
      &primitive));
  return fused_append(run, when, primitive, in_place);
}

static const rabbet_dnnl_when_t fused_always = {.is = RABBET_DNNL_ALWAYS};

// Copies the tensor to be added to the result's memory, unless it is there
// already, and lets the primitive add to it.
static rabbet_status_t fused_over(const fused_run_t* run,
                                  rabbet_dnnl_primitive_t* take_primitive,
                                  const rabbet_dnnl_ref_t* residual,
                                  rabbet_dtype_t dtype) {
  int64_t count = 0;
  rabbet_status_t status = rabbet_dnnl_physical_count(
      run->program, run->fused->epilogue.result, &count);
  if (rabbet_is_ok(status))
    status = rabbet_dnnl_move(run->program, fused_always, residual, dtype,
                              &run->dst, run->fused->spec.dst.dtype, count);
  if (!rabbet_is_ok(status)) {
    rabbet_dnnl_primitive_destroy(take_primitive);
    return status;
  }
  return fused_append(run, fused_always, take_primitive, true);
}

// A tensor is added from its own memory or in place. If implementations of both
// exist, a primitive for each is created, and the addresses of the run decide:
// with equal addresses only the addition in place is correct, as partial sums
// are kept in the result; with different ones the other saves a copy.
static rabbet_status_t fused_add(fused_run_t* run) {
  const rabbet_dnnl_fused_t* fused = run->fused;
  rabbet_dnnl_program_t* program = run->program;
  assert(fused->sum_item >= 0);
  int32_t value = fused->epilogue.items[fused->sum_item].operand;
  rabbet_dtype_t dtype = rabbet_dnnl_value(program, value)->dtype;
  bool converts = dtype != fused->spec.dst.dtype;
  rabbet_dnnl_ref_t residual = {0};
  rabbet_dnnl_primitive_t *from_operand = NULL, *in_place = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_input(program, value, dtype, &residual));
  RABBET_RETURN_IF_ERROR(fused_try(run, true, &in_place));
  if (in_place && converts) return fused_over(run, in_place, &residual, dtype);
  rabbet_status_t status = fused_try(run, false, &from_operand);
  if (!rabbet_is_ok(status)) {
    rabbet_dnnl_primitive_destroy(in_place);
    return status;
  }
  if (in_place && !from_operand)
    return fused_over(run, in_place, &residual, dtype);
  status = rabbet_dnnl_input(program, value, fused->spec.dst.dtype,
                             &run->operands[fused->sum_item]);
  const rabbet_dnnl_when_t same = {RABBET_DNNL_IF_SAME, residual, run->dst};
  const rabbet_dnnl_when_t different = {RABBET_DNNL_IF_DIFFERENT, residual,
                                        run->dst};
  bool promised = program->kernel->tactic & RABBET_DNNL_TACTIC_IN_PLACE;
  if (!rabbet_is_ok(status)) {
    rabbet_dnnl_primitive_destroy(in_place);
    rabbet_dnnl_primitive_destroy(from_operand);
    return status;
  }
  if (in_place)
    status = fused_append(run, same, in_place, true);
  else if (promised && !converts)
    status = fused_make(run, true, same);
  if (!rabbet_is_ok(status)) {
    rabbet_dnnl_primitive_destroy(from_operand);
    return status;
  }
  return from_operand ? fused_append(run, different, from_operand, false)
                      : fused_make(run, false, different);
}

// The operands besides the source: bias and operands of the items.
static rabbet_status_t fused_operands(fused_run_t* run) {
  const rabbet_dnnl_fused_t* fused = run->fused;
  const rabbet_epilogue_t* e = &fused->epilogue;
  if (fused->bias >= 0)
    RABBET_RETURN_IF_ERROR(
        fused->bias_factors
            ? rabbet_dnnl_scaled_input(run->program, fused->bias,
                                       fused->bias_factors,
                                       fused->spec.scale_count, &run->bias)
            : rabbet_dnnl_input(run->program, fused->bias,
                                fused->spec.bias.dtype, &run->bias));
  for (int i = 0; i < e->count; ++i) {
    if (e->items[i].is_binary && i != fused->sum_item)
      RABBET_RETURN_IF_ERROR(
          rabbet_dnnl_input_as(run->program, e->items[i].operand,
                               &fused->operands[i], &run->operands[i]));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_dnnl_fused_compile_part(const rabbet_dnnl_fused_t* fused,
                                               rabbet_dnnl_program_t* program,
                                               const rabbet_dnnl_ref_t* src,
                                               const rabbet_dnnl_ref_t* dst) {
  fused_run_t run = {
      .fused = fused, .program = program, .src = *src, .dst = *dst};
  RABBET_RETURN_IF_ERROR(fused_operands(&run));
  return fused_make(&run, false, fused_always);
}

// Whether the sum can be in place. An operand that has the result's shape in
// this run, but not at the optimum, has another format than the result.
static bool fused_sums(const rabbet_dnnl_fused_t* fused,
                       const rabbet_dnnl_program_t* program) {
  if (fused->sum_item < 0) return false;
  int32_t operand = fused->epilogue.items[fused->sum_item].operand;
  return fused->spec.dst.order != RABBET_DNNL_FORMAT ||
         rabbet_dnnl_value(program, operand)->format == fused->spec.dst.format;
}

rabbet_status_t rabbet_dnnl_fused_compile(const rabbet_dnnl_fused_t* group,
                                          rabbet_dnnl_program_t* program) {
  rabbet_dnnl_fused_t own = *group;
  const rabbet_dnnl_fused_t* fused = &own;
  const rabbet_epilogue_t* e = &own.epilogue;
  fused_run_t run = {.fused = fused, .program = program};
  if (!fused_sums(fused, program)) own.sum_item = -1;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_begin_output(
      program, e->result, fused->spec.dst.dtype, &run.dst));
  RABBET_RETURN_IF_ERROR(
      rabbet_dnnl_input(program, fused->src, fused->spec.src.dtype, &run.src));
  RABBET_RETURN_IF_ERROR(fused_operands(&run));
  if (fused->sum_item >= 0)
    RABBET_RETURN_IF_ERROR(fused_add(&run));
  else
    RABBET_RETURN_IF_ERROR(fused_make(&run, false, fused_always));
  return rabbet_dnnl_end_output(program, e->result, fused->spec.dst.dtype,
                                &run.dst);
}

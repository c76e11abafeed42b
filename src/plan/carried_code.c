// Code of plugins in a plan: reading the table, and whether it makes sense.
#include <string.h>

#include "base/math.h"
#include "plan/read.h"
#include "plan/verify.h"

static rabbet_status_t read_requirements(rabbet_plan_t* plan,
                                         const Rabbet__Plan__Carried* from,
                                         rabbet_carried_t* carried) {
  const char** list = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, from->n_requirements, sizeof(*list), (void**)&list));
  for (size_t i = 0; i < from->n_requirements; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_read_text(plan, from->requirements[i], &list[i]));
  carried->requirements = list;
  carried->requirement_count = from->n_requirements;
  return rabbet_ok();
}

// Items lie one behind another, so that the section holds nothing else.
static rabbet_status_t read_one_carried(rabbet_plan_t* plan,
                                        const Rabbet__Plan__Carried* from,
                                        rabbet_span_t section, size_t* at,
                                        rabbet_carried_t* carried) {
  RABBET_RETURN_IF_ERROR(rabbet_read_text(plan, from->name, &carried->name));
  size_t expected = rabbet_align_up(*at, RABBET_PLAN_ALIGNMENT);
  if (from->offset != expected || expected > section.size ||
      from->size > section.size - expected)
    return RABBET_DAMAGED(
        "'%s' lies at %llu with %llu bytes; expected at %zu, within the %zu "
        "bytes of section PLUGINS",
        carried->name, (unsigned long long)from->offset,
        (unsigned long long)from->size, expected, section.size);
  carried->kind = (rabbet_carried_kind_t)from->kind;
  carried->is_package = from->is_package;
  carried->data = from->size > 0 ? (const uint8_t*)section.data + from->offset
                                 : (const uint8_t*)"";
  carried->size = (size_t)from->size;
  *at = expected + carried->size;
  return read_requirements(plan, from, carried);
}

rabbet_status_t rabbet_read_carried(rabbet_plan_t* plan,
                                    const Rabbet__Plan__Meta* meta,
                                    rabbet_span_t section) {
  size_t end = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, meta->n_carried, sizeof(*plan->carried),
      (void**)&plan->carried));
  plan->carried_count = meta->n_carried;
  for (size_t i = 0; i < meta->n_carried; ++i)
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(read_one_carried(plan, meta->carried[i], section, &end,
                                         &plan->carried[i]),
                        "code %zu", i));
  if (end != section.size)
    return RABBET_DAMAGED(
        "the plugins' code ends at %zu, section PLUGINS at "
        "%zu",
        end, section.size);
  return rabbet_ok();
}

static rabbet_status_t verify_one_carried(const rabbet_plan_t* plan,
                                          const rabbet_carried_t* carried) {
  if (carried->kind != RABBET_CARRIED_LIBRARY &&
      carried->kind != RABBET_CARRIED_PYTHON)
    return RABBET_DAMAGED("it is of no known kind (%d)", (int)carried->kind);
  if (!*carried->name || strchr(carried->name, '/'))
    return RABBET_DAMAGED("'%s' is not a name", carried->name);
  if (carried->kind == RABBET_CARRIED_LIBRARY &&
      (carried->size == 0 || carried->is_package ||
       carried->requirement_count > 0))
    return RABBET_DAMAGED("'%s' is not a library", carried->name);
  for (const rabbet_carried_t* other = plan->carried; other < carried;
       ++other) {
    if (other->kind > carried->kind)
      return RABBET_DAMAGED("library '%s' comes after source", carried->name);
    if (other->kind == carried->kind && strcmp(other->name, carried->name) == 0)
      return RABBET_DAMAGED("'%s' comes twice", carried->name);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_verify_carried(const rabbet_plan_t* plan) {
  // Each name is compared with all others.
  if (plan->carried_count > 4096)
    return RABBET_DAMAGED(
        "the plan carries %zu libraries and modules; at most "
        "4096 are possible",
        plan->carried_count);
  for (size_t i = 0; i < plan->carried_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        verify_one_carried(plan, &plan->carried[i]), "code %zu", i));
  return rabbet_ok();
}

// Completes attributes: converts given ones to the descriptor's types and
// order, and adds defaults.
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/suggest.h"
#include "ops/op.h"

static const char* op_attr_name_at(const void* list, size_t index) {
  return ((const rabbet_op_attr_t*)list)[index].name;
}

static const char* op_enumerator_at(const void* list, size_t index) {
  return ((const rabbet_op_enumerator_t*)list)[index].name;
}

static size_t op_enumerator_count(const rabbet_op_enumerator_t* list) {
  size_t count = 0;
  while (list[count].name)
    ++count;
  return count;
}

// "a, b, c" of the names that `name_at` gives, cut short when it does not fit.
static const char* op_list(rabbet_suggest_name_fn_t name_at, const void* list,
                           size_t count, char* buffer, size_t capacity) {
  size_t used = 0;
  assert(capacity >= 8);
  buffer[0] = '\0';
  for (size_t i = 0; i < count; ++i) {
    const char* name = name_at(list, i);
    size_t size = strlen(name);
    if (used + size + 8 > capacity) {
      memcpy(buffer + used, ", ...", 6);
      break;
    }
    if (i > 0) {
      memcpy(buffer + used, ", ", 2);
      used += 2;
    }
    memcpy(buffer + used, name, size + 1);
    used += size;
  }
  return buffer;
}

static rabbet_status_t op_unknown_attr(const rabbet_op_t* op,
                                       const char* name) {
  if (op->attr_count == 0) {
    return RABBET_STATUS(RABBET_STATUS_NOT_FOUND,
                         "operator '%s' has no attributes, so none named '%s'",
                         op->name, name);
  }
  char near[128], all[384];
  return RABBET_STATUS(
      RABBET_STATUS_NOT_FOUND,
      "operator '%s' has no attribute '%s'%s; it has: %s", op->name, name,
      rabbet_suggest_print(name, op_attr_name_at, op->attrs, op->attr_count,
                           near, sizeof near),
      op_list(op_attr_name_at, op->attrs, op->attr_count, all, sizeof all));
}

static rabbet_status_t op_wrong_type(const rabbet_op_t* op,
                                     const rabbet_op_attr_t* attr,
                                     rabbet_attr_type_t given) {
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "attribute '%s' of operator '%s' must be %s, not %s",
                       attr->name, op->name, rabbet_attr_type_name(attr->type),
                       rabbet_attr_type_name(given));
}

static rabbet_status_t op_wrong_enumerator(const rabbet_op_t* op,
                                           const rabbet_op_attr_t* attr,
                                           const char* given) {
  char all[512];
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "attribute '%s' of operator '%s' cannot be %s; expected one of: %s",
      attr->name, op->name, given,
      op_list(op_enumerator_at, attr->enumerators,
              op_enumerator_count(attr->enumerators), all, sizeof all));
}

// An enumerator by its name, in any case.
static rabbet_status_t op_parse_enumerator(const rabbet_op_t* op,
                                           const rabbet_op_attr_t* attr,
                                           const char* name,
                                           int64_t* out_value) {
  const rabbet_op_enumerator_t* e = attr->enumerators;
  for (; e->name; ++e) {
    if (strcasecmp(e->name, name) == 0) {
      *out_value = e->value;
      return rabbet_ok();
    }
  }
  return op_wrong_enumerator(op, attr, name);
}

static rabbet_status_t op_to_int(const rabbet_op_t* op,
                                 const rabbet_op_attr_t* attr,
                                 const rabbet_attr_t* given,
                                 int64_t* out_value) {
  if (given->type == RABBET_ATTR_STRING && attr->enumerators) {
    return op_parse_enumerator(op, attr, given->data, out_value);
  }
  if (given->type != RABBET_ATTR_INT && given->type != RABBET_ATTR_BOOL) {
    return op_wrong_type(op, attr, given->type);
  }
  *out_value = *(const int64_t*)given->data;
  if (attr->type == RABBET_ATTR_BOOL) *out_value = *out_value != 0;
  if (attr->enumerators && !rabbet_op_enumerator_name(attr, *out_value)) {
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)*out_value);
    return op_wrong_enumerator(op, attr, number);
  }
  return rabbet_ok();
}

static rabbet_status_t op_to_float(const rabbet_op_t* op,
                                   const rabbet_op_attr_t* attr,
                                   const rabbet_attr_t* given,
                                   double* out_value) {
  if (given->type == RABBET_ATTR_FLOAT) {
    *out_value = *(const double*)given->data;
  } else if (given->type == RABBET_ATTR_INT ||
             given->type == RABBET_ATTR_BOOL) {
    *out_value = (double)*(const int64_t*)given->data;
  } else {
    return op_wrong_type(op, attr, given->type);
  }
  return rabbet_ok();
}

static bool op_holds_ints(const rabbet_attr_t* given) {
  return given->type == RABBET_ATTR_INTS || given->type == RABBET_ATTR_BOOLS ||
         given->type == RABBET_ATTR_INT ||
         // An empty list may have elements of any type.
         ((given->type == RABBET_ATTR_FLOATS ||
           given->type == RABBET_ATTR_STRINGS) &&
          given->count == 0);
}

// Converts an attribute to a list of floats.
static rabbet_status_t op_to_floats(const rabbet_op_t* op,
                                    const rabbet_op_attr_t* attr,
                                    const rabbet_attr_t* given,
                                    rabbet_arena_t* arena,
                                    rabbet_attr_t* converted) {
  double* data = NULL;
  if (given->type == RABBET_ATTR_FLOATS) return rabbet_ok();
  if (given->type == RABBET_ATTR_FLOAT) {
    converted->count = 1;
    return rabbet_ok();
  }
  if (!op_holds_ints(given)) return op_wrong_type(op, attr, given->type);
  converted->count = given->type == RABBET_ATTR_INT ? 1 : given->count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, converted->count, sizeof(double), (void**)&data));
  for (size_t i = 0; i < converted->count; ++i)
    data[i] = (double)((const int64_t*)given->data)[i];
  converted->data = data;
  return rabbet_ok();
}

static rabbet_status_t op_convert(const rabbet_op_t* op,
                                  const rabbet_op_attr_t* attr,
                                  const rabbet_attr_t* given,
                                  rabbet_arena_t* arena,
                                  rabbet_attr_t* out_attr) {
  int64_t integer = 0;
  double real = 0;
  rabbet_attr_t converted = *given;
  converted.name = attr->name;
  converted.type = attr->type;
  switch (attr->type) {
    case RABBET_ATTR_INT:
    case RABBET_ATTR_BOOL:
      RABBET_RETURN_IF_ERROR(op_to_int(op, attr, given, &integer));
      converted.data = &integer;
      converted.count = 1;
      break;
    case RABBET_ATTR_FLOAT:
      RABBET_RETURN_IF_ERROR(op_to_float(op, attr, given, &real));
      converted.data = &real;
      converted.count = 1;
      break;
    case RABBET_ATTR_INTS:
      if (!op_holds_ints(given)) {
        return op_wrong_type(op, attr, given->type);
      }
      if (given->type == RABBET_ATTR_INT) converted.count = 1;
      break;
    case RABBET_ATTR_STRING:
      if (given->type != attr->type) {
        return op_wrong_type(op, attr, given->type);
      }
      if (given->count > 0 && memchr(given->data, 0, given->count)) {
        return RABBET_STATUS(
            RABBET_STATUS_INVALID_ARGUMENT,
            "attribute '%s' of operator '%s' has a null character at %zu of "
            "its %zu bytes, where it would be cut off",
            attr->name, op->name,
            (size_t)((const char*)memchr(given->data, 0, given->count) -
                     (const char*)given->data),
            given->count);
      }
      break;
    case RABBET_ATTR_FLOATS:
      RABBET_RETURN_IF_ERROR(op_to_floats(op, attr, given, arena, &converted));
      break;
    default:
      if (given->type != attr->type) {
        return op_wrong_type(op, attr, given->type);
      }
      break;
  }
  return rabbet_attr_copy(arena, &converted, out_attr);
}

static rabbet_status_t op_default(const rabbet_op_t* op,
                                  const rabbet_op_attr_t* attr,
                                  rabbet_arena_t* arena,
                                  rabbet_attr_t* out_attr) {
  if (attr->required) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "operator '%s' needs attribute '%s' (%s)", op->name,
                         attr->name, rabbet_attr_type_name(attr->type));
  }
  rabbet_attr_t value = {.name = attr->name, .type = attr->type};
  value.dtype = RABBET_DTYPE_NONE;
  if (attr->type == RABBET_ATTR_INT || attr->type == RABBET_ATTR_BOOL) {
    value.data = &attr->default_int;
    value.count = 1;
  } else if (attr->type == RABBET_ATTR_FLOAT) {
    value.data = &attr->default_float;
    value.count = 1;
  } else {
    value.data = "";
  }
  return rabbet_attr_copy(arena, &value, out_attr);
}

rabbet_status_t rabbet_op_complete_attr(const rabbet_op_t* op,
                                        const rabbet_attr_t* given,
                                        rabbet_arena_t* arena,
                                        size_t* out_index,
                                        rabbet_attr_t* out_attr) {
  *out_index = 0;
  const char* name = given->name ? given->name : "";
  for (size_t i = 0; i < op->attr_count; ++i) {
    if (strcmp(op->attrs[i].name, name) != 0) continue;
    *out_index = i;
    return op_convert(op, &op->attrs[i], given, arena, out_attr);
  }
  return op_unknown_attr(op, name);
}

rabbet_status_t rabbet_op_complete_attrs(const rabbet_op_t* op,
                                         const rabbet_attr_t* given,
                                         size_t given_count,
                                         rabbet_arena_t* arena,
                                         rabbet_attr_t* out_attrs) {
  for (size_t i = 0; i < op->attr_count; ++i) {
    out_attrs[i] = (rabbet_attr_t){0};
  }
  for (size_t i = 0; i < given_count; ++i) {
    size_t index = 0;
    rabbet_attr_t attr = {0};
    RABBET_RETURN_IF_ERROR(
        rabbet_op_complete_attr(op, &given[i], arena, &index, &attr));
    if (out_attrs[index].name) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "attribute '%s' of operator '%s' is given twice",
                           attr.name, op->name);
    }
    out_attrs[index] = attr;
  }
  for (size_t i = 0; i < op->attr_count; ++i) {
    if (out_attrs[i].name) continue;
    RABBET_RETURN_IF_ERROR(op_default(op, &op->attrs[i], arena, &out_attrs[i]));
  }
  for (size_t i = 0; i < op->attr_count; ++i) {
    assert(strcmp(out_attrs[i].name, op->attrs[i].name) == 0);
    assert(out_attrs[i].type == op->attrs[i].type);
  }
  return rabbet_ok();
}

// The process's plugin creators: with the host of sources (source_host.c) the
// only global state of the project.
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/struct.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/vec.h"
#include "plugin/registry.h"

typedef struct registered_t {
  rabbet_plugin_creator_t creator;  // first: the public view
  rabbet_refcount_t references;
  rabbet_arena_t arena;  // strings and fields
} registered_t;

static struct {
  pthread_mutex_t lock;
  rabbet_creator_list_t list;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Where this thread's registrations go instead, while a library is opened.
static _Thread_local rabbet_creator_list_t* collecting;

static bool same_key(const rabbet_plugin_creator_t* creator, const char* name,
                     const char* version, const char* plugin_namespace) {
  return strcmp(creator->name, name) == 0 &&
         strcmp(creator->version, version ? version : "1") == 0 &&
         strcmp(creator->plugin_namespace,
                plugin_namespace ? plugin_namespace : "") == 0;
}

// Position in the list, or its count.
static size_t creators_position(const rabbet_creator_list_t* list,
                                const char* name, const char* version,
                                const char* plugin_namespace) {
  size_t i = 0;
  while (i < list->count &&
         !same_key(list->data[i], name, version, plugin_namespace)) {
    ++i;
  }
  return i;
}

// Takes the creator on success.
static rabbet_status_t creators_add(
    rabbet_creator_list_t* list, const rabbet_plugin_creator_t* take_creator) {
  size_t at = creators_position(list, take_creator->name, take_creator->version,
                                take_creator->plugin_namespace);
  if (at < list->count) {
    return RABBET_STATUS(
        RABBET_STATUS_ALREADY_EXISTS,
        "a plugin '%s', version '%s', namespace '%s' is registered already, "
        "from '%s'",
        take_creator->name, take_creator->version,
        take_creator->plugin_namespace, list->data[at]->origin);
  }
  return RABBET_VEC_PUSH(rabbet_allocator_system(), list, take_creator);
}

// The creator that was there, now the caller's; or NULL.
static const rabbet_plugin_creator_t* creators_remove(
    rabbet_creator_list_t* list, const char* name, const char* version,
    const char* plugin_namespace) {
  size_t at = creators_position(list, name, version, plugin_namespace);
  if (at == list->count) return NULL;
  const rabbet_plugin_creator_t* removed = list->data[at];
  memmove(&list->data[at], &list->data[at + 1],
          (list->count - at - 1) * sizeof(removed));
  if (--list->count == 0) rabbet_vec_free(rabbet_allocator_system(), list);
  return removed;
}

rabbet_status_t rabbet_creator_read(const rabbet_plugin_creator_t* given,
                                    rabbet_plugin_creator_t* out_creator) {
  if (!given)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin creator: it is NULL");
  RABBET_RETURN_IF_ERROR(
      RABBET_STRUCT_READ(rabbet_plugin_creator_t, given, create, out_creator));
  if (given->struct_size <
      RABBET_SIZE_THROUGH(rabbet_plugin_creator_t, input_count))
    out_creator->input_count = -1;
  return rabbet_ok();
}

// Of all but the fields.
static rabbet_status_t creator_check(const rabbet_plugin_creator_t* creator) {
  if (!creator->name || !*creator->name) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin creator: name is empty");
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_text_check("the name of a plugin", creator->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_text_check("the version of a plugin", creator->version));
  RABBET_RETURN_IF_ERROR(rabbet_text_check("the namespace of a plugin",
                                           creator->plugin_namespace));
  if (!creator->create) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin creator '%s': create is NULL", creator->name);
  }
  if (creator->field_count > 0 && !creator->fields) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin creator '%s': %zu fields but fields is NULL",
                         creator->name, creator->field_count);
  }
  return rabbet_ok();
}

static rabbet_status_t fields_copy(const rabbet_plugin_creator_t* from,
                                   rabbet_arena_t* arena,
                                   rabbet_plugin_creator_t* out) {
  rabbet_plugin_field_t* fields = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, from->field_count, sizeof(*fields), (void**)&fields));
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(RABBET_ELEMENTS_READ(rabbet_plugin_field_t, from->fields,
                                           from->field_size, from->field_count,
                                           required, fields),
                      "plugin creator '%s': fields", from->name));
  for (size_t i = 0; i < from->field_count; ++i) {
    if (!fields[i].name || !*fields[i].name)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "plugin creator '%s': field %zu has no name",
                           from->name, i);
    RABBET_RETURN_IF_ERROR(
        rabbet_text_check("the name of a plugin's field", fields[i].name));
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(arena, fields[i].name, &fields[i].name));
  }
  out->fields = fields;
  out->field_size = sizeof(*fields);
  return rabbet_ok();
}

// A path need not be UTF-8, as plans must: for people to read, it is escaped.
static rabbet_status_t origin_copy(rabbet_arena_t* arena, const char* origin,
                                   const char** out_origin) {
  if (!origin) origin = "";
  char* copy = NULL;
  size_t size = rabbet_text_escape(origin, NULL, 0) + 1;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(arena, size, (void**)&copy));
  rabbet_text_escape(origin, copy, size);
  *out_origin = copy;
  return rabbet_ok();
}

static rabbet_status_t creator_copy(const rabbet_plugin_creator_t* from,
                                    rabbet_arena_t* arena,
                                    rabbet_plugin_creator_t* out) {
  *out = *from;
  rabbet_status_t status = rabbet_arena_strdup(arena, from->name, &out->name);
  if (rabbet_is_ok(status)) {
    status = rabbet_arena_strdup(arena, from->version ? from->version : "1",
                                 &out->version);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_arena_strdup(
        arena, from->plugin_namespace ? from->plugin_namespace : "",
        &out->plugin_namespace);
  }
  if (rabbet_is_ok(status)) {
    status = origin_copy(arena, from->origin, &out->origin);
  }
  return rabbet_is_ok(status) ? fields_copy(from, arena, out) : status;
}

static void registered_free(registered_t* registered) {
  rabbet_arena_deinitialize(&registered->arena);
  rabbet_free(rabbet_allocator_system(), registered);
}

rabbet_status_t rabbet_creator_create(const rabbet_plugin_creator_t* creator,
                                      const rabbet_plugin_creator_t** out) {
  *out = NULL;
  rabbet_plugin_creator_t own;
  RABBET_RETURN_IF_ERROR(rabbet_creator_read(creator, &own));
  RABBET_RETURN_IF_ERROR(creator_check(&own));
  rabbet_allocator_t allocator = rabbet_allocator_system();
  registered_t* registered = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*registered), (void**)&registered));
  rabbet_refcount_initialize(&registered->references);
  rabbet_arena_initialize(allocator, &registered->arena);
  rabbet_status_t status =
      creator_copy(&own, &registered->arena, &registered->creator);
  if (!rabbet_is_ok(status)) {
    registered_free(registered);
    return status;
  }
  *out = &registered->creator;
  return rabbet_ok();
}

void rabbet_creator_retain(const rabbet_plugin_creator_t* creator) {
  rabbet_refcount_retain(&((registered_t*)creator)->references);
}

void rabbet_plugin_creator_release(const rabbet_plugin_creator_t* creator) {
  registered_t* registered = (registered_t*)creator;
  if (!registered || !rabbet_refcount_release(&registered->references)) return;
  if (creator->destroy) creator->destroy(creator->user_data);
  registered_free(registered);
}

rabbet_status_t rabbet_plugin_register(const rabbet_plugin_creator_t* creator) {
  const rabbet_plugin_creator_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_creator_create(creator, &copy));
  rabbet_status_t status;
  if (collecting) {
    status = creators_add(collecting, copy);
  } else {
    pthread_mutex_lock(&registry.lock);
    status = creators_add(&registry.list, copy);
    pthread_mutex_unlock(&registry.lock);
  }
  if (!rabbet_is_ok(status)) {
    registered_free((registered_t*)copy);
  }
  return status;
}

rabbet_status_t rabbet_plugin_deregister(const char* name, const char* version,
                                         const char* plugin_namespace) {
  if (!name) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "plugin name is NULL");
  }
  const rabbet_plugin_creator_t* removed =
      collecting ? creators_remove(collecting, name, version, plugin_namespace)
                 : NULL;
  if (!removed) {
    pthread_mutex_lock(&registry.lock);
    removed = creators_remove(&registry.list, name, version, plugin_namespace);
    pthread_mutex_unlock(&registry.lock);
  }
  if (!removed) {
    return RABBET_STATUS(
        RABBET_STATUS_NOT_FOUND,
        "no plugin '%s', version '%s', namespace '%s' is registered", name,
        version ? version : "1", plugin_namespace ? plugin_namespace : "");
  }
  rabbet_plugin_creator_release(removed);
  return rabbet_ok();
}

// ---- Lists of creators

rabbet_creator_list_t* rabbet_creators_collect(rabbet_creator_list_t* list) {
  rabbet_creator_list_t* previous = collecting;
  collecting = list;
  return previous;
}

rabbet_status_t rabbet_creators_publish(const rabbet_creator_list_t* list) {
  rabbet_status_t status = rabbet_ok();
  size_t added = 0;
  pthread_mutex_lock(&registry.lock);
  while (rabbet_is_ok(status) && added < list->count) {
    status = creators_add(&registry.list, list->data[added]);
    added += rabbet_is_ok(status);
  }
  for (size_t i = 0; i < added; ++i) {
    const rabbet_plugin_creator_t* creator = list->data[i];
    if (rabbet_is_ok(status)) {
      rabbet_creator_retain(creator);
    } else {
      creators_remove(&registry.list, creator->name, creator->version,
                      creator->plugin_namespace);
    }
  }
  pthread_mutex_unlock(&registry.lock);
  return status;
}

const rabbet_plugin_creator_t* rabbet_creators_find(
    const rabbet_creator_list_t* list, const char* name, const char* version,
    const char* plugin_namespace) {
  size_t at = creators_position(list, name, version, plugin_namespace);
  return at < list->count ? list->data[at] : NULL;
}

rabbet_status_t rabbet_creators_set_origin(const rabbet_creator_list_t* list,
                                           const char* origin) {
  for (size_t i = 0; i < list->count; ++i) {
    registered_t* registered = (registered_t*)list->data[i];
    if (*registered->creator.origin) continue;
    RABBET_RETURN_IF_ERROR(
        origin_copy(&registered->arena, origin, &registered->creator.origin));
  }
  return rabbet_ok();
}

void rabbet_creators_free(rabbet_creator_list_t* list) {
  for (size_t i = 0; i < list->count; ++i)
    rabbet_plugin_creator_release(list->data[i]);
  rabbet_vec_free(rabbet_allocator_system(), list);
}

// ---- Looking up

static const char* registry_name_at(const void* list, size_t index) {
  (void)list;
  return registry.list.data[index]->name;
}

// "; did you mean 'namespace::Name' or ...?", or "". The lock is held.
static void registry_print_near(const char* name, rabbet_strbuf_t* hint) {
  const char* names[RABBET_SUGGEST_MAX];
  size_t count =
      rabbet_suggest(name, registry_name_at, NULL, registry.list.count, names);
  for (size_t i = 0; i < count; ++i) {
    size_t at = 0;
    while (registry.list.data[at]->name != names[i])
      ++at;
    const char* where = registry.list.data[at]->plugin_namespace;
    rabbet_strbuf_printf(hint, "%s'%s%s%s'", i ? " or " : "; did you mean ",
                         where, *where ? "::" : "", names[i]);
  }
  if (count) rabbet_strbuf_printf(hint, "?");
}

// An error that names other versions and namespaces that are registered, else
// similar names. The lock is held.
static rabbet_status_t registry_missing(const char* name, const char* version,
                                        const char* plugin_namespace) {
  rabbet_strbuf_t hint;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &hint);
  for (size_t i = 0; i < registry.list.count; ++i) {
    const rabbet_plugin_creator_t* creator = registry.list.data[i];
    if (strcmp(creator->name, name) != 0) continue;
    rabbet_strbuf_printf(&hint, "%s version '%s' in namespace '%s'",
                         hint.size ? "," : "; registered under that name:",
                         creator->version, creator->plugin_namespace);
  }
  if (hint.size == 0 && registry.list.count == 0) {
    rabbet_strbuf_printf(&hint, "; no plugin is registered at all");
  } else if (hint.size == 0) {
    registry_print_near(name, &hint);
  }
  rabbet_status_t status = RABBET_STATUS(
      RABBET_STATUS_NOT_FOUND,
      "no plugin '%s', version '%s', namespace '%s' is registered%s", name,
      version ? version : "1", plugin_namespace ? plugin_namespace : "",
      rabbet_strbuf_text(&hint));
  rabbet_strbuf_deinitialize(&hint);
  return status;
}

rabbet_status_t rabbet_plugin_find(
    const char* name, const char* version, const char* plugin_namespace,
    const rabbet_plugin_creator_t** out_creator) {
  *out_creator = NULL;
  if (!name) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "plugin name is NULL");
  }
  rabbet_status_t status = rabbet_ok();
  pthread_mutex_lock(&registry.lock);
  *out_creator =
      rabbet_creators_find(&registry.list, name, version, plugin_namespace);
  if (*out_creator) {
    rabbet_creator_retain(*out_creator);
  } else {
    status = registry_missing(name, version, plugin_namespace);
  }
  pthread_mutex_unlock(&registry.lock);
  return status;
}

rabbet_status_t rabbet_plugin_visit(
    rabbet_status_t (*visit)(void* context,
                             const rabbet_plugin_creator_t* creator),
    void* context) {
  // The visitor may register or deregister: the lock is not held around it.
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status); ++i) {
    const rabbet_plugin_creator_t* creator = NULL;
    pthread_mutex_lock(&registry.lock);
    if (i < registry.list.count) {
      creator = registry.list.data[i];
      rabbet_creator_retain(creator);
    }
    pthread_mutex_unlock(&registry.lock);
    if (!creator) break;
    status = visit(context, creator);
    rabbet_plugin_creator_release(creator);
  }
  return status;
}

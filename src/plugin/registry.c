// The process's plugin creators. The only global state of the project.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/suggest.h"
#include "base/thread.h"
#include "base/vec.h"
#include "plugin/registry.h"

typedef struct rabbet_registered_t {
  rabbet_plugin_creator_t creator;  // first: the public view
  rabbet_refcount_t references;
  rabbet_arena_t arena;  // strings and fields
} rabbet_registered_t;

static struct {
  pthread_mutex_t lock;
  RABBET_VEC(rabbet_registered_t*) creators;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool rabbet_same_key(const rabbet_plugin_creator_t* creator,
                            const char* name, const char* version,
                            const char* plugin_namespace) {
  return strcmp(creator->name, name) == 0 &&
         strcmp(creator->version, version ? version : "1") == 0 &&
         strcmp(creator->plugin_namespace,
                plugin_namespace ? plugin_namespace : "") == 0;
}

// Position in the registry, or its count. The lock is held.
static size_t rabbet_registry_position(const char* name, const char* version,
                                       const char* plugin_namespace) {
  size_t i = 0;
  while (i < registry.creators.count &&
         !rabbet_same_key(&registry.creators.data[i]->creator, name, version,
                          plugin_namespace)) {
    ++i;
  }
  return i;
}

static rabbet_status_t rabbet_creator_check(
    const rabbet_plugin_creator_t* creator) {
  if (!creator || creator->struct_size < sizeof(*creator)) {
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "plugin creator: struct_size is %u, expected at least %zu; set it to "
        "sizeof(rabbet_plugin_creator_t)",
        creator ? creator->struct_size : 0, sizeof(*creator));
  }
  if (!creator->name || !*creator->name) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin creator: name is empty");
  }
  if (!creator->create) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin creator '%s': create is NULL", creator->name);
  }
  if (creator->field_count > 0 && !creator->fields) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin creator '%s': %zu fields but fields is NULL",
                         creator->name, creator->field_count);
  }
  for (size_t i = 0; i < creator->field_count; ++i) {
    if (!creator->fields[i].name || !*creator->fields[i].name) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "plugin creator '%s': field %zu has no name",
                           creator->name, i);
    }
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_creator_copy(const rabbet_plugin_creator_t* from,
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
    status = rabbet_arena_strdup(arena, from->origin ? from->origin : "",
                                 &out->origin);
  }
  rabbet_plugin_field_t* fields = NULL;
  if (rabbet_is_ok(status)) {
    status =
        rabbet_arena_copy(arena, from->fields,
                          from->field_count * sizeof(*fields), (void**)&fields);
  }
  for (size_t i = 0; rabbet_is_ok(status) && i < from->field_count; ++i) {
    status = rabbet_arena_strdup(arena, from->fields[i].name, &fields[i].name);
  }
  out->fields = fields;
  return status;
}

static void rabbet_registered_free(rabbet_registered_t* registered) {
  rabbet_arena_deinitialize(&registered->arena);
  rabbet_free(rabbet_allocator_system(), registered);
}

rabbet_status_t rabbet_creator_create(const rabbet_plugin_creator_t* creator,
                                      const rabbet_plugin_creator_t** out) {
  *out = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_creator_check(creator));
  rabbet_allocator_t allocator = rabbet_allocator_system();
  rabbet_registered_t* registered = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*registered), (void**)&registered));
  rabbet_refcount_initialize(&registered->references);
  rabbet_arena_initialize(allocator, &registered->arena);
  rabbet_status_t status =
      rabbet_creator_copy(creator, &registered->arena, &registered->creator);
  if (!rabbet_is_ok(status)) {
    rabbet_registered_free(registered);
    return status;
  }
  *out = &registered->creator;
  return rabbet_ok();
}

void rabbet_creator_retain(const rabbet_plugin_creator_t* creator) {
  rabbet_refcount_retain(&((rabbet_registered_t*)creator)->references);
}

void rabbet_plugin_creator_release(const rabbet_plugin_creator_t* creator) {
  rabbet_registered_t* registered = (rabbet_registered_t*)creator;
  if (!registered || !rabbet_refcount_release(&registered->references)) return;
  if (creator->destroy) creator->destroy(creator->user_data);
  rabbet_registered_free(registered);
}

rabbet_status_t rabbet_plugin_register(const rabbet_plugin_creator_t* creator) {
  const rabbet_plugin_creator_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_creator_create(creator, &copy));
  pthread_mutex_lock(&registry.lock);
  size_t at = rabbet_registry_position(copy->name, copy->version,
                                       copy->plugin_namespace);
  rabbet_status_t status;
  if (at < registry.creators.count) {
    status = RABBET_STATUS(
        RABBET_STATUS_ALREADY_EXISTS,
        "a plugin '%s', version '%s', namespace '%s' is registered already, "
        "from '%s'",
        copy->name, copy->version, copy->plugin_namespace,
        registry.creators.data[at]->creator.origin);
  } else {
    status = RABBET_VEC_PUSH(rabbet_allocator_system(), &registry.creators,
                             (rabbet_registered_t*)copy);
  }
  pthread_mutex_unlock(&registry.lock);
  if (!rabbet_is_ok(status)) {
    rabbet_registered_free((rabbet_registered_t*)copy);
  }
  return status;
}

rabbet_status_t rabbet_plugin_deregister(const char* name, const char* version,
                                         const char* plugin_namespace) {
  if (!name) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "plugin name is NULL");
  }
  rabbet_registered_t* removed = NULL;
  pthread_mutex_lock(&registry.lock);
  size_t at = rabbet_registry_position(name, version, plugin_namespace);
  if (at < registry.creators.count) {
    removed = registry.creators.data[at];
    memmove(&registry.creators.data[at], &registry.creators.data[at + 1],
            (registry.creators.count - at - 1) * sizeof(removed));
    if (--registry.creators.count == 0) {
      rabbet_vec_free(rabbet_allocator_system(), &registry.creators);
    }
  }
  pthread_mutex_unlock(&registry.lock);
  if (!removed) {
    return RABBET_STATUS(
        RABBET_STATUS_NOT_FOUND,
        "no plugin '%s', version '%s', namespace '%s' is registered", name,
        version ? version : "1", plugin_namespace ? plugin_namespace : "");
  }
  rabbet_plugin_creator_release(&removed->creator);
  return rabbet_ok();
}

static const char* rabbet_registry_name_at(const void* list, size_t index) {
  (void)list;
  return registry.creators.data[index]->creator.name;
}

// What is registered under other versions or namespaces, else similar names.
// The lock is held.
static rabbet_status_t rabbet_registry_missing(const char* name,
                                               const char* version,
                                               const char* plugin_namespace) {
  rabbet_strbuf_t hint;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &hint);
  for (size_t i = 0; i < registry.creators.count; ++i) {
    const rabbet_plugin_creator_t* creator =
        &registry.creators.data[i]->creator;
    if (strcmp(creator->name, name) != 0) continue;
    rabbet_strbuf_printf(&hint, "%s version '%s' in namespace '%s'",
                         hint.size ? "," : "; registered under that name:",
                         creator->version, creator->plugin_namespace);
  }
  if (hint.size == 0 && registry.creators.count == 0) {
    rabbet_strbuf_printf(&hint, "; no plugin is registered at all");
  } else if (hint.size == 0) {
    char near_names[256];
    rabbet_strbuf_printf(&hint, "%s",
                         rabbet_suggest_print(name, rabbet_registry_name_at,
                                              NULL, registry.creators.count,
                                              near_names, sizeof(near_names)));
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
  size_t at = rabbet_registry_position(name, version, plugin_namespace);
  if (at < registry.creators.count) {
    *out_creator = &registry.creators.data[at]->creator;
    rabbet_creator_retain(*out_creator);
  } else {
    status = rabbet_registry_missing(name, version, plugin_namespace);
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
    if (i < registry.creators.count) {
      creator = &registry.creators.data[i]->creator;
      rabbet_creator_retain(creator);
    }
    pthread_mutex_unlock(&registry.lock);
    if (!creator) break;
    status = visit(context, creator);
    rabbet_plugin_creator_release(creator);
  }
  return status;
}

// A library of plugins need not be linked against this one: where this one was
// opened for a single module (as Python's are), its functions become visible to
// all that is opened later.
static void rabbet_show_functions(void) {
  Dl_info info;
  if (!dladdr((const void*)(uintptr_t)&rabbet_plugin_register, &info) ||
      !info.dli_fname)
    return;
  void* self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  if (self) dlclose(self);  // gives back the reference, not the visibility
}

rabbet_status_t rabbet_plugin_load_library(const char* path) {
  if (!path) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin library: path is NULL");
  }
  rabbet_show_functions();
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "plugin library '%s' cannot be opened: %s", path,
                         dlerror());
  }
  rabbet_status_t (*entry)(void) = NULL;
  *(void**)&entry = dlsym(library, "rabbet_plugin_library_register");
  if (!entry) {
    dlclose(library);
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin library '%s' does not export "
                         "rabbet_plugin_library_register",
                         path);
  }
  return RABBET_ANNOTATE(entry(), "plugin library '%s'", path);
}

// Which implementations oneDNN has for a specification.
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/hash.h"
#include "base/math.h"
#include "device/cpu/dnnl/headroom.h"
#include "device/cpu/dnnl/internal.h"
#include "device/cpu/parallel.h"

// Whether the status says that oneDNN has no such primitive.
static bool is_absent(dnnl_status_t status) {
  return status == dnnl_unimplemented || status == dnnl_invalid_arguments ||
         status == dnnl_iterator_ends;
}

const char* rabbet_dnnl_desc_name(const_dnnl_primitive_desc_t desc) {
  const char* name = NULL;
  if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0,
                                (void*)&name) != dnnl_success ||
      !name) {
    return "?";
  }
  return name;
}

// 23 bits of the name, and 1 to keep it from being 0.
static int32_t name_hash(const char* name) {
  uint32_t hash = 2166136261u;
  for (; *name; ++name)
    hash = (hash ^ (uint8_t)*name) * 16777619u;
  return (int32_t)((hash ^ (hash >> 23)) & 0x7fffff) | (1 << 23);
}

double rabbet_dnnl_start_us(int32_t tactic) {
  // Convolutions by im2col and inner products; matrix products.
  static const char* const names[] = {"x64:gemm:jit", "gemm:jit"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
    if ((tactic & RABBET_DNNL_TACTIC_IMPLEMENTATION) == name_hash(names[i]))
      return 35000;
  return 0;
}

// Whether a window lies entirely in the padding, between its taps, too, if
// dilation is larger than the image.
static bool sees_padding(const rabbet_dnnl_spec_t* spec) {
  for (int i = 0; i < spec->src.rank - 2; ++i) {
    int64_t in = spec->src.dims[i + 2], dilation = spec->dilation[i];
    for (int64_t o = 0; o < spec->dst.dims[i + 2]; ++o) {
      int64_t first = o * spec->stride[i] - spec->before[i];
      // The first tap that is not before the image.
      int64_t tap = first < 0 ? rabbet_ceildiv(-first, dilation) : 0;
      if (tap >= spec->window[i] || first + tap * dilation >= in) return true;
    }
  }
  return false;
}

static bool has_odd_channels(const rabbet_dnnl_spec_t* spec) {
  int axis = spec->weights.rank > spec->src.rank ? 2 : 1;  // after the groups
  return spec->weights.rank > axis && spec->weights.dims[axis] % 2 != 0 &&
         (spec->src.order == RABBET_DNNL_STRIDED ||
          rabbet_dnnl_channels_last(spec->src.format, spec->src.rank));
}

static bool has_small_groups(const rabbet_dnnl_spec_t* spec) {
  enum { VECTOR = 16 };
  return spec->weights.rank > spec->src.rank &&
         (spec->weights.dims[1] % VECTOR != 0 ||
          spec->weights.dims[2] % VECTOR != 0);
}

// Implementations of oneDNN 2.6 that failed our tests: they are not used.
static bool is_unfit(const rabbet_dnnl_spec_t* spec, const char* name) {
  // Code for processors that sum pairs of 8-bit products in 16 bits.
  static const char* const narrow[] = {":avx512_core", ":avx2", ":avx",
                                       ":sse41"};
  bool bytes =
      spec->weights.rank > 0 && spec->weights.dtype == RABBET_DTYPE_INT8;
  const char* isa = strrchr(name, ':');
  for (size_t i = 0; bytes && isa && i < sizeof(narrow) / sizeof(narrow[0]);
       ++i)
    if (strcmp(isa, narrow[i]) == 0) return true;
  // Convolutions by im2col read operands of posts at wrong offsets.
  if (bytes && spec->kind == RABBET_DNNL_CONVOLUTION && strstr(name, "gemm"))
    return true;
  // With posts it wrote beyond results of 33, 36, 48 and more pixels in BF16,
  // and of 33 in INT8. "brgconv_1x1" does the same work.
  if (spec->kind == RABBET_DNNL_CONVOLUTION &&
      strstr(name, "jit_1x1:avx512_core_amx"))
    return true;
  // It jumps to code that was not generated if a window has only padding and a
  // sum follows.
  if (spec->kind == RABBET_DNNL_CONVOLUTION && strstr(name, "brgconv") &&
      sees_padding(spec))
    return true;
  // Its generated code does not fit into its buffer if the groups are small and
  // a function such as x sigmoid(x) follows.
  if (spec->kind == RABBET_DNNL_CONVOLUTION && strstr(name, "jit_bf16:") &&
      has_small_groups(spec))
    return true;
  // With 120 or more pixels and an odd number of channels, it sums the memory
  // after the last channel, too.
  if (spec->kind == RABBET_DNNL_CONVOLUTION && strstr(name, "jit_bf16_1x1") &&
      has_odd_channels(spec))
    return true;
  if (spec->kind != RABBET_DNNL_CONVOLUTION || !strstr(name, "gemm:"))
    return false;
  // It reads a binary post's operand at wrong offsets.
  for (int i = 0; i < spec->post_count; ++i) {
    if (spec->posts[i].kind == RABBET_DNNL_POST_BINARY &&
        (spec->dst.order == RABBET_DNNL_STRIDED ||
         rabbet_dnnl_channels_last(spec->dst.format, spec->dst.rank))) {
      return true;
    }
  }
  return false;
}

enum { MOST_IMPLEMENTATIONS = 64 };

// The implementations seen in a walk. oneDNN's iterator returns those in its
// primitive cache a second time, so that the list depends on earlier
// primitives: the first of each name counts.
typedef struct walk_t {
  int32_t ids[MOST_IMPLEMENTATIONS];
  int count;
} walk_t;

static rabbet_dnnl_implementation_t describe(const_dnnl_primitive_desc_t desc) {
  const char* name = rabbet_dnnl_desc_name(desc);
  return (rabbet_dnnl_implementation_t){
      .id = name_hash(name),
      .name = name,
      .is_reference = strncmp(name, "ref", 3) == 0,
  };
}

static bool is_new(walk_t* walk, int32_t id) {
  for (int i = 0; i < walk->count; ++i)
    if (walk->ids[i] == id) return false;
  if (walk->count < MOST_IMPLEMENTATIONS) walk->ids[walk->count++] = id;
  return true;
}

// Reorders and concatenations come without an iterator, one implementation
// each.
static rabbet_status_t implementations_single(rabbet_dnnl_t* dnnl,
                                              const rabbet_dnnl_spec_t* spec,
                                              const_dnnl_primitive_attr_t attr,
                                              dnnl_primitive_desc_t* out_desc) {
  *out_desc = NULL;
  dnnl_memory_desc_t dst, src;
  dnnl_status_t status = dnnl_success;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->dst, &dst));
  if (spec->kind == RABBET_DNNL_REORDER) {
    RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->src, &src));
    status = dnnl_reorder_primitive_desc_create(out_desc, &src, dnnl->engine,
                                                &dst, dnnl->engine, attr);
  } else {
    dnnl_memory_desc_t sources[RABBET_DNNL_MAX_SOURCES];
    for (int i = 0; i < spec->source_count; ++i)
      RABBET_RETURN_IF_ERROR(rabbet_dnnl_desc(&spec->sources[i], &sources[i]));
    status = dnnl_concat_primitive_desc_create(out_desc, &dst,
                                               spec->source_count, spec->axis,
                                               sources, attr, dnnl->engine);
  }
  if (is_absent(status)) return rabbet_ok();
  return rabbet_dnnl_status(status, "describing a primitive");
}

static rabbet_status_t walk_single(rabbet_dnnl_t* dnnl,
                                   const rabbet_dnnl_spec_t* spec,
                                   const_dnnl_primitive_attr_t attr,
                                   rabbet_dnnl_desc_visit_fn_t visit,
                                   void* context) {
  dnnl_primitive_desc_t desc = NULL;
  RABBET_RETURN_IF_ERROR(implementations_single(dnnl, spec, attr, &desc));
  if (!desc) return rabbet_ok();
  rabbet_dnnl_implementation_t found = describe(desc);
  bool taken = false;
  rabbet_status_t status = visit(context, desc, &found, &taken);
  if (!taken) dnnl_primitive_desc_destroy(desc);
  return status;
}

static rabbet_status_t walk_iterator(rabbet_dnnl_t* dnnl,
                                     const rabbet_dnnl_spec_t* spec,
                                     const_dnnl_primitive_attr_t attr,
                                     rabbet_dnnl_desc_visit_fn_t visit,
                                     void* context) {
  rabbet_dnnl_descs_t descs;
  rabbet_dnnl_op_desc_t op;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_spec_descs(spec, &descs));
  dnnl_status_t result = rabbet_dnnl_op_desc(spec, &descs, &op);
  dnnl_primitive_desc_iterator_t iterator = NULL;
  if (result == dnnl_success)
    result = dnnl_primitive_desc_iterator_create(&iterator, &op, attr,
                                                 dnnl->engine, NULL);
  if (is_absent(result)) return rabbet_ok();
  rabbet_status_t status =
      rabbet_dnnl_status(result, "listing implementations");
  walk_t walk = {0};
  bool taken = false;
  while (rabbet_is_ok(status) && result == dnnl_success && !taken) {
    dnnl_primitive_desc_t desc = dnnl_primitive_desc_iterator_fetch(iterator);
    if (!desc) {
      status = rabbet_dnnl_status(dnnl_out_of_memory, "listing");
      break;
    }
    rabbet_dnnl_implementation_t found = describe(desc);
    if (!is_unfit(spec, found.name) && is_new(&walk, found.id))
      status = visit(context, desc, &found, &taken);
    if (!taken) dnnl_primitive_desc_destroy(desc);
    if (!taken) result = dnnl_primitive_desc_iterator_next(iterator);
  }
  if (iterator) dnnl_primitive_desc_iterator_destroy(iterator);
  return status;
}

static bool is_nothing(const rabbet_dnnl_layout_t* layout) {
  for (int i = 0; i < layout->rank; ++i)
    if (layout->dims[i] == 0) return true;
  return false;
}

// The most padding along an axis, or the input's extent if that is larger: the
// library visits each tap of a window in the padding, too.
#define RABBET_DNNL_MOST_PADDING 4096

// Parts of the library compute in 32 bits: if an extent, with its padding and
// rounded up to its blocks, or a window exceeds them, it divides by 0, or
// searches for hours.
#define RABBET_DNNL_MOST_EXTENT (INT32_MAX / 2)

static bool is_wide(const rabbet_dnnl_layout_t* layout) {
  for (int i = 0; i < layout->rank; ++i)
    if (layout->dims[i] > RABBET_DNNL_MOST_EXTENT) return true;
  return false;
}

static bool has_wide_window(const rabbet_dnnl_spec_t* spec) {
  for (int i = 0; i < spec->src.rank - 2; ++i) {
    int64_t cover = 0;
    int64_t most =
        rabbet_max_i64(RABBET_DNNL_MOST_PADDING, spec->src.dims[i + 2]);
    bool fits =
        rabbet_checked_mul(spec->window[i], spec->dilation[i], &cover) &&
        cover <= RABBET_DNNL_MOST_EXTENT &&
        spec->window[i] <= RABBET_DNNL_MOST_EXTENT &&
        spec->stride[i] <= RABBET_DNNL_MOST_EXTENT && spec->before[i] <= most &&
        spec->after[i] <= most && spec->after[i] >= -RABBET_DNNL_MOST_EXTENT;
    if (!fits) return true;
  }
  return false;
}

rabbet_status_t rabbet_dnnl_walk(rabbet_dnnl_t* dnnl,
                                 const rabbet_dnnl_spec_t* spec,
                                 rabbet_dnnl_desc_visit_fn_t visit,
                                 void* context) {
  dnnl_primitive_attr_t attr = NULL;
  // The library rejects some empty tensors and divides by the extents of
  // others.
  if (is_nothing(&spec->src) || is_nothing(&spec->weights) ||
      is_nothing(&spec->dst) || is_wide(&spec->src) ||
      is_wide(&spec->weights) || is_wide(&spec->dst) || has_wide_window(spec))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_cpu_check_room());
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_attr(spec, &attr));
  bool single =
      spec->kind == RABBET_DNNL_REORDER || spec->kind == RABBET_DNNL_CONCAT;
  rabbet_status_t status =
      (single ? walk_single : walk_iterator)(dnnl, spec, attr, visit, context);
  dnnl_primitive_attr_destroy(attr);
  return status;
}

// The implementations of a specification.
typedef struct list_t {
  int count;
  rabbet_dnnl_implementation_t items[MOST_IMPLEMENTATIONS];
} list_t;

static rabbet_status_t list_add(void* context, dnnl_primitive_desc_t desc,
                                const rabbet_dnnl_implementation_t* found,
                                bool* out_taken) {
  (void)desc;
  *out_taken = false;
  list_t* list = context;
  if (list->count < MOST_IMPLEMENTATIONS) list->items[list->count++] = *found;
  return rabbet_ok();
}

// oneDNN lists an implementation in its cache first, so lists would depend on
// earlier primitives. The cache belongs to the process: the first walk that
// begins empties it, and the last that ends restores its size.
static struct {
  pthread_mutex_t lock;
  int lists;
  int capacity;  // before the first walk, in primitives
} rabbet_dnnl_cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static rabbet_status_t cache_suspend(void) {
  dnnl_status_t result = dnnl_success;
  pthread_mutex_lock(&rabbet_dnnl_cache.lock);
  if (rabbet_dnnl_cache.lists == 0) {
    result = dnnl_get_primitive_cache_capacity(&rabbet_dnnl_cache.capacity);
    if (result == dnnl_success) result = dnnl_set_primitive_cache_capacity(0);
  }
  if (result == dnnl_success) ++rabbet_dnnl_cache.lists;
  pthread_mutex_unlock(&rabbet_dnnl_cache.lock);
  return rabbet_dnnl_status(result, "emptying the cache");
}

static rabbet_status_t cache_resume(void) {
  dnnl_status_t result = dnnl_success;
  pthread_mutex_lock(&rabbet_dnnl_cache.lock);
  if (--rabbet_dnnl_cache.lists == 0)
    result = dnnl_set_primitive_cache_capacity(rabbet_dnnl_cache.capacity);
  pthread_mutex_unlock(&rabbet_dnnl_cache.lock);
  return rabbet_dnnl_status(result, "restoring the cache");
}

static rabbet_status_t list_make(rabbet_dnnl_t* dnnl,
                                 const rabbet_dnnl_spec_t* spec, int threads,
                                 list_t* list) {
  list->count = 0;
  RABBET_RETURN_IF_ERROR(cache_suspend());
  int before = rabbet_cpu_set_threads(threads);
  rabbet_status_t status = rabbet_dnnl_walk(dnnl, spec, list_add, list);
  rabbet_cpu_restore_threads(before);
  return rabbet_status_join(status, cache_resume());
}

// ---- Lists that are kept ---------------------------------------------------

// A list takes the library 50 us, and a build asks for the same one up to ten
// times: layers repeat themselves, and conversions are asked for at each edge.
enum { MOST_LISTS = 1 << 14 };

typedef struct list_key_t {
  rabbet_hash_t spec;
  int64_t threads;
} list_key_t;

// Specifications that point to others' memory have no key.
static bool list_key(const rabbet_dnnl_spec_t* spec, int threads,
                     list_key_t* out_key) {
  *out_key = (list_key_t){.spec = rabbet_hash128(spec, sizeof(*spec)),
                          .threads = threads};
  return !spec->sources && !spec->scales;
}

static bool list_find(rabbet_dnnl_t* dnnl, const list_key_t* key,
                      list_t* list) {
  pthread_mutex_lock(&dnnl->lock);
  const list_t* kept =
      rabbet_map_get(&dnnl->lists, (const char*)key, sizeof(*key));
  if (kept) {
    list->count = kept->count;
    memcpy(list->items, kept->items,
           (size_t)kept->count * sizeof(kept->items[0]));
  }
  pthread_mutex_unlock(&dnnl->lock);
  return kept != NULL;
}

// Names are the library's constants. Another thread may have kept an equal list
// meanwhile, which this one replaces.
static rabbet_status_t list_keep(rabbet_dnnl_t* dnnl, const list_key_t* key,
                                 const list_t* list) {
  size_t size =
      offsetof(list_t, items) + (size_t)list->count * sizeof(list->items[0]);
  void *kept = NULL, *kept_key = NULL;
  rabbet_status_t status = rabbet_ok();
  pthread_mutex_lock(&dnnl->lock);
  if (dnnl->lists.count < MOST_LISTS) {
    status = rabbet_arena_copy(&dnnl->arena, key, sizeof(*key), &kept_key);
    if (rabbet_is_ok(status))
      status = rabbet_arena_copy(&dnnl->arena, list, size, &kept);
    if (rabbet_is_ok(status))
      status = rabbet_map_set(&dnnl->lists, kept_key, sizeof(*key), kept);
  }
  pthread_mutex_unlock(&dnnl->lock);
  return status;
}

rabbet_status_t rabbet_dnnl_enumerate(
    rabbet_dnnl_t* dnnl, const rabbet_dnnl_spec_t* spec, int threads,
    rabbet_status_t (*visit)(void* context,
                             const rabbet_dnnl_implementation_t* found),
    void* context) {
  list_key_t key;
  list_t list;
  bool keeps = list_key(spec, threads, &key);
  rabbet_status_t status = rabbet_ok();
  if (!keeps || !list_find(dnnl, &key, &list)) {
    status = list_make(dnnl, spec, threads, &list);
    if (rabbet_is_ok(status) && keeps) status = list_keep(dnnl, &key, &list);
  }
  for (int i = 0; rabbet_is_ok(status) && i < list.count; ++i)
    status = visit(context, &list.items[i]);
  return status;
}

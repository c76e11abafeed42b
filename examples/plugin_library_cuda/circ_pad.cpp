// A plugin library in C++: circular padding of the last two axes, on a GPU.
//
// The kernel (examples/circular_padding/circ_pad.cu) lies in the library: as PTX
// where nvcc compiled it, else as source, which NVRTC compiles when shapes are
// prepared. Driver and NVRTC are opened at run time, so that building this
// needs no CUDA toolkit.
#include <rabbet/plugin.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace {

// ---- The kernel's text -----------------------------------------------------

#define EMBED(name, file)                                      \
  extern "C" __attribute__((visibility("hidden"))) const char name[]; \
  __asm__(".pushsection .rodata\n" #name ": .incbin \"" file   \
          "\"\n.byte 0\n.popsection\n");

#ifdef CIRC_PAD_PTX  // a folder with circ_pad_<item>_<unroll>.ptx
EMBED(circ_pad_4_4, CIRC_PAD_PTX "/circ_pad_4_4.ptx")
EMBED(circ_pad_4_2, CIRC_PAD_PTX "/circ_pad_4_2.ptx")
EMBED(circ_pad_2_4, CIRC_PAD_PTX "/circ_pad_2_4.ptx")
EMBED(circ_pad_2_2, CIRC_PAD_PTX "/circ_pad_2_2.ptx")
#else
EMBED(circ_pad_source, CIRC_PAD_SOURCE)
#endif

constexpr int kThreads = 256;      // of a block, as in circ_pad.cu
constexpr int kUnroll[] = {4, 2};  // pieces in flight, of tactics 1 and 2

// ---- Libraries -------------------------------------------------------------

// The first of the names that can be opened; the variable's value alone if set.
void* open_library(const char* variable,
                   std::initializer_list<const char*> names) {
  const char* given = std::getenv(variable);
  if (given) return dlopen(given, RTLD_NOW);
  for (const char* name : names)
    if (void* library = dlopen(name, RTLD_NOW)) return library;
  return nullptr;
}

template <typename Function>
void find(void* library, const char* name, Function*& out) {
  out = library ? reinterpret_cast<Function*>(dlsym(library, name)) : nullptr;
}

// As in cuda.h.
struct Driver {
  int (*load)(void** module, const void* image);
  int (*get)(void** function, void* module, const char* name);
  int (*unload)(void* module);
  int (*launch)(void* function, unsigned gx, unsigned gy, unsigned gz,
                unsigned bx, unsigned by, unsigned bz, unsigned shared,
                void* stream, void** parameters, void** extra);
  int (*error)(int result, const char** text);

  Driver() {
    void* library = open_library("RABBET_CUDA_DRIVER", {"libcuda.so.1"});
    find(library, "cuModuleLoadData", load);
    find(library, "cuModuleGetFunction", get);
    find(library, "cuModuleUnload", unload);
    find(library, "cuLaunchKernel", launch);
    find(library, "cuGetErrorString", error);
  }

  rabbet_status_t check(int result, const char* what) const {
    const char* text = nullptr;
    if (result == 0) return rabbet_ok();
    if (error(result, &text) != 0) text = nullptr;
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "%s: %s (%d)", what,
                         text ? text : "unknown error", result);
  }
};

// Rabbet has opened it before there is anything to do on a GPU.
rabbet_status_t get_driver(const Driver** out) {
  static const Driver driver;
  *out = &driver;
  if (driver.load && driver.get && driver.unload && driver.launch &&
      driver.error)
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                       "NVIDIA's driver (libcuda.so.1) cannot be opened");
}

// ---- PTX -------------------------------------------------------------------

#ifdef CIRC_PAD_PTX

rabbet_status_t make_ptx(int item, int unroll, std::string* out) {
  *out = item == 4 ? (unroll == 4 ? circ_pad_4_4 : circ_pad_4_2)
                   : (unroll == 4 ? circ_pad_2_4 : circ_pad_2_2);
  return rabbet_ok();
}

#else

// As in nvrtc.h.
struct Nvrtc {
  int (*create)(void** program, const char* source, const char* name, int count,
                const char* const* headers, const char* const* names);
  int (*destroy)(void** program);
  int (*compile)(void* program, int count, const char* const* options);
  int (*log_size)(void* program, size_t* size);
  int (*log)(void* program, char* text);
  int (*ptx_size)(void* program, size_t* size);
  int (*ptx)(void* program, char* text);

  Nvrtc() {
    void* library =
        open_library("RABBET_NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12"});
    find(library, "nvrtcCreateProgram", create);
    find(library, "nvrtcDestroyProgram", destroy);
    find(library, "nvrtcCompileProgram", compile);
    find(library, "nvrtcGetProgramLogSize", log_size);
    find(library, "nvrtcGetProgramLog", log);
    find(library, "nvrtcGetPTXSize", ptx_size);
    find(library, "nvrtcGetPTX", ptx);
  }
};

rabbet_status_t compile(const Nvrtc& nvrtc, void* program, int item, int unroll,
                        std::string* out) {
  const std::string defines[] = {"-DITEM=" + std::to_string(item),
                                 "-DUNROLL=" + std::to_string(unroll)};
  const char* options[] = {"--gpu-architecture=compute_80", defines[0].c_str(),
                           defines[1].c_str()};
  size_t size = 0;
  if (nvrtc.compile(program, 3, options) != 0) {
    std::string log;
    if (nvrtc.log_size(program, &size) == 0) log.resize(size);
    if (nvrtc.log(program, &log[0]) != 0) log = "it does not say why";
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "NVRTC refuses circ_pad.cu: %s",
                         log.c_str());
  }
  if (nvrtc.ptx_size(program, &size) == 0) out->resize(size);
  if (size > 0 && nvrtc.ptx(program, &(*out)[0]) == 0) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_PLUGIN, "NVRTC gives no PTX");
}

rabbet_status_t make_ptx(int item, int unroll, std::string* out) {
  static const Nvrtc nvrtc;
  void* program = nullptr;
  if (!nvrtc.create || !nvrtc.destroy || !nvrtc.compile || !nvrtc.log_size ||
      !nvrtc.log || !nvrtc.ptx_size || !nvrtc.ptx)
    return RABBET_STATUS(
        RABBET_STATUS_UNAVAILABLE,
        "NVRTC (libnvrtc.so.13 or .12) is not on the loader's path: name its "
        "file in RABBET_NVRTC, or build this library where nvcc is");
  if (nvrtc.create(&program, circ_pad_source, "circ_pad.cu", 0, nullptr,
                   nullptr) != 0)
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "NVRTC makes no program");
  rabbet_status_t status = compile(nvrtc, program, item, unroll, out);
  nvrtc.destroy(&program);
  return status;
}

#endif

// ---- A layer ---------------------------------------------------------------

struct CircPad {
  int64_t pad;  // of each side of both axes; 0 <= pad <= their extents
  std::mutex lock;
  std::map<std::pair<int, int>, std::string> ptx;  // by item and unroll

  // No exception may leave a callback.
  rabbet_status_t code(int item, int unroll, const char** out) try {
    std::lock_guard<std::mutex> guard(lock);
    std::string& text = ptx[{item, unroll}];
    if (text.empty())
      RABBET_RETURN_IF_ERROR(make_ptx(item, unroll, &text));
    *out = text.c_str();
    return rabbet_ok();
  } catch (const std::exception& error) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "%s", error.what());
  }
};

// What one set of shapes needs.
struct State {
  void* module;
  void* function;
  int height, width, pad, blocks;
  unsigned grid;
};

int32_t output_count(void*) { return 1; }

rabbet_status_t describe(void* self, rabbet_dim_builder_t* builder,
                         const rabbet_plugin_input_t* inputs, size_t,
                         rabbet_plugin_output_t* outputs) {
  rabbet_dim_t both = 0;
  int32_t rank = inputs[0].rank;
  if (rank < 2)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the input has rank %d; expected 2 or more", rank);
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = rank;
  std::memcpy(outputs[0].dims, inputs[0].dims, sizeof(outputs[0].dims));
  RABBET_RETURN_IF_ERROR(rabbet_dim_constant(
      builder, 2 * static_cast<CircPad*>(self)->pad, &both));
  for (int32_t axis = rank - 2; axis < rank; ++axis)
    RABBET_RETURN_IF_ERROR(rabbet_dim_operation(builder, RABBET_DIM_SUM,
                                                inputs[0].dims[axis], both,
                                                &outputs[0].dims[axis]));
  return rabbet_ok();
}

rabbet_status_t combinations(void*, const rabbet_plugin_query_t* query,
                             rabbet_plugin_combination_sink_t sink) {
  if (std::strcmp(query->device, "cuda") != 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it runs on GPUs; examples/plugin_library_c is for the "
                         "CPU");
  for (rabbet_dtype_t type :
       {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF, RABBET_DTYPE_BF16}) {
    const rabbet_plugin_type_format_t both[] = {{type, RABBET_FORMAT_LINEAR},
                                                {type, RABBET_FORMAT_LINEAR}};
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, both));
  }
  return rabbet_ok();
}

rabbet_status_t tactics(void*, const rabbet_plugin_query_t*,
                        rabbet_plugin_tactic_sink_t sink) {
  RABBET_RETURN_IF_ERROR(sink.add(sink.context, 1));
  return sink.add(sink.context, 2);
}

rabbet_status_t measure(const rabbet_plugin_call_t* call, int64_t pad, int item,
                        int unroll, State* state) {
  const rabbet_dims_t& dims = call->inputs[0].dims;
  int64_t height = dims.d[dims.rank - 2], width = dims.d[dims.rank - 1];
  int64_t planes = 1, piece = 16 / item;
  for (int32_t axis = 0; axis < dims.rank - 2; ++axis) planes *= dims.d[axis];
  if (pad > height || pad > width)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "pad is %lld, but a plane has %lld x %lld elements",
                         (long long)pad, (long long)height, (long long)width);
  int64_t size = (height + 2 * pad) * (width + 2 * pad);
  // The first piece begins before a plane that is not aligned.
  int64_t share = piece * kThreads * unroll;
  int64_t blocks = (size + piece + share - 1) / share;
  if (size > INT32_MAX || planes * blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "%lld planes of %lld elements are too many",
                         (long long)planes, (long long)size);
  state->height = (int)height;
  state->width = (int)width;
  state->pad = (int)pad;
  state->blocks = (int)blocks;
  state->grid = (unsigned)(planes * blocks);
  return rabbet_ok();
}

rabbet_status_t load(const Driver& driver, const char* ptx, State* state) {
  RABBET_RETURN_IF_ERROR(
      driver.check(driver.load(&state->module, ptx), "cuModuleLoadData"));
  rabbet_status_t status =
      driver.check(driver.get(&state->function, state->module, "circ_pad"),
                   "cuModuleGetFunction");
  if (!rabbet_is_ok(status)) driver.unload(state->module);
  return status;
}

// Rabbet's context is current in this, in destroy_state and in enqueue.
rabbet_status_t prepare(void* self, const rabbet_plugin_call_t* call,
                        size_t* out_workspace, void** out_state) {
  CircPad* plugin = static_cast<CircPad*>(self);
  int item = call->inputs[0].dtype == RABBET_DTYPE_FLOAT ? 4 : 2;
  int unroll = kUnroll[call->tactic == 2];
  const Driver* driver = nullptr;
  const char* ptx = nullptr;
  State made = {};
  *out_workspace = 0;
  *out_state = nullptr;
  RABBET_RETURN_IF_ERROR(get_driver(&driver));
  RABBET_RETURN_IF_ERROR(measure(call, plugin->pad, item, unroll, &made));
  RABBET_RETURN_IF_ERROR(plugin->code(item, unroll, &ptx));
  RABBET_RETURN_IF_ERROR(load(*driver, ptx, &made));
  *out_state = new (std::nothrow) State(made);
  if (*out_state) return rabbet_ok();
  driver->unload(made.module);
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "no memory for a state");
}

void destroy_state(void*, void* state) {
  const Driver* driver = nullptr;
  rabbet_status_ignore(get_driver(&driver));
  driver->unload(static_cast<State*>(state)->module);
  delete static_cast<State*>(state);
}

// All on the stream of the call, and nothing is waited for.
rabbet_status_t enqueue(void*, const rabbet_plugin_call_t* call) {
  State* state = static_cast<State*>(call->state);
  const Driver* driver = nullptr;
  RABBET_RETURN_IF_ERROR(get_driver(&driver));
  if (state->grid == 0) return rabbet_ok();
  void* src = call->inputs[0].data;
  void* dst = call->outputs[0].data;
  void* parameters[] = {&src,        &state->height, &state->width,
                        &state->pad, &state->blocks, &dst};
  return driver->check(
      driver->launch(state->function, state->grid, 1, 1, kThreads, 1, 1, 0,
                     call->stream, parameters, nullptr),
      "cuLaunchKernel");
}

// So it may be recorded into a graph, and replayed.
rabbet_plugin_capture_t capture(void*, const rabbet_plugin_call_t*) {
  return RABBET_PLUGIN_CAPTURE_SAFE;
}

// What `create` needs when the plan is loaded, and what the speed depends on.
rabbet_status_t serialize(void* self, rabbet_plugin_attr_sink_t sink) {
  rabbet_attr_t pad = {};
  pad.name = "pad";
  pad.type = RABBET_ATTR_INT;
  pad.data = &static_cast<CircPad*>(self)->pad;
  pad.count = 1;
  return sink.add(sink.context, &pad);
}

void destroy(void* self) { delete static_cast<CircPad*>(self); }

rabbet_plugin_vtable_t make_vtable() {
  rabbet_plugin_vtable_t vtable = {};
  vtable.struct_size = sizeof(vtable);
  vtable.destroy = destroy;
  vtable.output_count = output_count;
  vtable.describe = describe;
  vtable.combinations = combinations;
  vtable.tactics = tactics;
  vtable.timing_key = serialize;
  vtable.serialize = serialize;
  vtable.prepare = prepare;
  vtable.destroy_state = destroy_state;
  vtable.enqueue = enqueue;
  vtable.capture = capture;
  return vtable;
}

rabbet_status_t create(void*, const rabbet_plugin_create_t* args,
                       rabbet_plugin_instance_t* out_instance) {
  static const rabbet_plugin_vtable_t vtable = make_vtable();
  const rabbet_attr_t* pad =
      rabbet_attr_find(args->attrs, args->attr_count, "pad");
  // In a build a required field was checked before; a plan may be anyone's.
  if (!pad || pad->type != RABBET_ATTR_INT ||
      *static_cast<const int64_t*>(pad->data) < 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "'pad' must be an integer, 0 or more");
  CircPad* self = new (std::nothrow) CircPad();
  if (!self)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "no memory for a plugin");
  self->pad = *static_cast<const int64_t*>(pad->data);
  *out_instance = {&vtable, self};
  return rabbet_ok();
}

rabbet_status_t register_all() {
  rabbet_plugin_field_t pad = {};
  pad.name = "pad";
  pad.type = RABBET_ATTR_INT;
  pad.required = true;
  rabbet_plugin_creator_t creator = {};
  creator.struct_size = sizeof(creator);
  creator.name = "circ_pad_plugin";
  creator.plugin_namespace = "example";
  creator.origin = "circ_pad.cpp";
  creator.fields = &pad;
  creator.field_count = 1;
  creator.field_size = sizeof(pad);
  creator.create = create;
  creator.input_count = 1;
  return rabbet_plugin_register(&creator);
}

}  // namespace

RABBET_PLUGIN_LIBRARY(register_all)

// Convolutions of our own whose filters are panels of planes: taps of the
// window, or what a transform makes of them.
#ifndef RABBET_SRC_DEVICE_CPU_IMAGE_FILTERS_H_
#define RABBET_SRC_DEVICE_CPU_IMAGE_FILTERS_H_

#include "device/cpu/image/finish.h"
#include "ops/image/window.h"

typedef struct rabbet_cpu_filters_t {
  rabbet_node_kernel_t node;
  rabbet_cpu_finish_t finish;
  int64_t groups;
  int64_t channels;  // of a group
  int64_t maps, planes;
  // Panels begin anew in each part of the maps: a group, or all of them.
  int64_t parts, panels;  // panels: of a part
  // [parts][panels][planes][channels][RABBET_PANEL]; of small groups as
  // grouped_convolution.c has them.
  float* weights;
  float* bias;  // as many as the panels have columns; the maps' come first
} rabbet_cpu_filters_t;

// The weights' extents, [maps][channels][window].
const rabbet_dims_t* rabbet_cpu_filters_dims(const rabbet_group_t* group);
// Whether the group is a convolution of FLOAT with constant weights and layers
// that finish it.
bool rabbet_cpu_filters_fit(const rabbet_group_t* group,
                            rabbet_cpu_finish_t* out_finish);
// The same without groups, with at least `least` channels and maps.
bool rabbet_cpu_filters_match(const rabbet_group_t* group, int64_t least,
                              rabbet_cpu_finish_t* out_finish);
// Its window; false if the attributes contradict each other.
bool rabbet_cpu_filters_window(const rabbet_group_t* group,
                               rabbet_window_t* out_window);
// Where its windows lie in images of two axes; those of rank 3 have a height of
// 1.
enum { RABBET_CPU_AXES = 2 };
typedef struct rabbet_cpu_windows_t {
  rabbet_window_t window;
  int64_t before[RABBET_CPU_AXES], in[RABBET_CPU_AXES], out[RABBET_CPU_AXES];
  int64_t images;
} rabbet_cpu_windows_t;
// For dims of the group's values. OUT_OF_RANGE if the input has other channels
// than the kernel.
rabbet_status_t rabbet_cpu_filters_place(const rabbet_cpu_filters_t* filters,
                                         const rabbet_dims_t* dims,
                                         rabbet_cpu_windows_t* out_windows);
// Makes the state of a prepared kernel, of `bytes`, which is zero, and checks
// what the finish reads.
rabbet_status_t rabbet_cpu_filters_begin(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         size_t bytes, void** out_state);
// Elements of a window.
int64_t rabbet_cpu_filters_taps(const rabbet_group_t* group);
// Maps in a panel of a part.
int64_t rabbet_cpu_filters_width(const rabbet_cpu_filters_t* filters,
                                 int64_t panel);

// Fills the weights, which are zero, from filters [maps][channels][window].
typedef void rabbet_cpu_filters_pack_t(const rabbet_cpu_filters_t* filters,
                                       const float* from);

// Makes a kernel of a group that the class takes. `parts` divides the maps.
rabbet_status_t rabbet_cpu_filters_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    int64_t parts, int64_t planes, rabbet_cpu_filters_pack_t* pack,
    rabbet_kernel_t** out_kernel);
void rabbet_cpu_filters_destroy(rabbet_kernel_t* base);

#endif  // RABBET_SRC_DEVICE_CPU_IMAGE_FILTERS_H_

// Convolutions of our own whose filters are panels of planes: taps of the
// window, or what a transform makes of them.
#ifndef RABBET_SRC_DEVICE_CPU_IMAGE_FILTERS_H_
#define RABBET_SRC_DEVICE_CPU_IMAGE_FILTERS_H_

#include "device/cpu/image/finish.h"

typedef struct rabbet_cpu_filters_t {
  rabbet_node_kernel_t node;
  rabbet_cpu_finish_t finish;
  int64_t channels, maps, planes, panels;
  float* weights;  // [panels][planes][channels][RABBET_PANEL]
  float* bias;     // of all columns of the panels
} rabbet_cpu_filters_t;

// Fills the weights, which are zero, from filters [maps][channels][window].
typedef void rabbet_cpu_filters_pack_t(const rabbet_cpu_filters_t* filters,
                                       const float* from);

// Makes a kernel of a group that the class takes.
rabbet_status_t rabbet_cpu_filters_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    int64_t planes, rabbet_cpu_filters_pack_t* pack,
    rabbet_kernel_t** out_kernel);
void rabbet_cpu_filters_destroy(rabbet_kernel_t* base);

#endif  // RABBET_SRC_DEVICE_CPU_IMAGE_FILTERS_H_

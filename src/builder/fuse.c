// Which nodes may share a kernel: the partition into clusters.

#include "builder/tuner.h"

rabbet_status_t rabbet_fuse_partition(rabbet_build_t* build, int32_t* ids) {
  for (size_t i = 0; i < build->ir.nodes.count; ++i)
    ids[i] = (int32_t)i;
  return rabbet_ok();
}

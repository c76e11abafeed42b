// The covers of a cluster.

#include "builder/tuner.h"

rabbet_status_t rabbet_tune_cover(rabbet_build_t* build,
                                  rabbet_cluster_t* cluster) {
  rabbet_cover_t* cover = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, sizeof(*cover), (void**)&cover));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, cluster->node_count, sizeof(rabbet_unit_t*),
      (void**)&cover->units));
  for (size_t i = 0; i < cluster->node_count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_tuner_unit(build, &cluster->nodes[i], 1, &cover->units[i]));
  cover->unit_count = cluster->node_count;
  cluster->covers = cover;
  cluster->cover_count = 1;
  return rabbet_ok();
}

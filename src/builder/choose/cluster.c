// Nodes -> clusters: the variables of the whole-graph choice.

#include <assert.h>
#include <string.h>

#include "builder/choose/tuner.h"

static rabbet_status_t cluster_add(rabbet_build_t* build,
                                   rabbet_cluster_kind_t kind, int32_t number,
                                   rabbet_cluster_t** out_cluster) {
  rabbet_cluster_t* cluster = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, sizeof(*cluster), (void**)&cluster));
  cluster->kind = kind;
  cluster->number = number;
  *out_cluster = cluster;
  return RABBET_VEC_PUSH(build->allocator, &build->tuner->clusters, cluster);
}

static rabbet_status_t cluster_boundary(rabbet_build_t* build,
                                        rabbet_cluster_kind_t kind,
                                        const int32_t* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    rabbet_cluster_t* cluster = NULL;
    RABBET_RETURN_IF_ERROR(cluster_add(build, kind, (int32_t)i, &cluster));
    int32_t* value = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&build->arena, &values[i],
                                             sizeof(int32_t), (void**)&value));
    assert(values[i] >= 0 && (size_t)values[i] < build->ir.values.count);
    if (kind == RABBET_CLUSTER_INPUT) {
      assert(build->tuner->makers[values[i]] < 0);
      cluster->outputs = value;
      cluster->output_count = 1;
      build->tuner->output_places[values[i]] = 0;
      build->tuner->makers[values[i]] =
          (int32_t)build->tuner->clusters.count - 1;
    } else if (build->tuner->makers[values[i]] >= 0) {
      cluster->inputs = value;
      cluster->input_count = 1;
    } else {  // known to the host: no node computes it
      cluster->inputs = value;
    }
  }
  return rabbet_ok();
}

// ---- Values shared with other clusters -------------------------------------

// Lists the values from other clusters, each once. The tuner's slots mark
// listed values.
static rabbet_status_t cluster_inputs(rabbet_build_t* build,
                                      rabbet_cluster_t* cluster, int32_t self) {
  rabbet_tuner_t* tuner = build->tuner;
  size_t limit = 0;
  for (size_t i = 0; i < cluster->node_count; ++i)
    limit += cluster->nodes[i]->input_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, limit, sizeof(int32_t), (void**)&cluster->inputs));
  for (size_t i = 0; i < cluster->node_count; ++i) {
    const rabbet_ir_node_t* node = cluster->nodes[i];
    for (size_t k = 0; k < node->input_count; ++k) {
      int32_t id = node->inputs[k];
      if (id < 0) continue;
      int32_t maker = tuner->makers[id];
      if (maker < 0 || maker == self || tuner->slots[id] >= 0) continue;
      tuner->slots[id] = 0;
      cluster->inputs[cluster->input_count++] = id;
    }
  }
  assert(cluster->input_count <= limit);
  for (size_t i = 0; i < cluster->input_count; ++i)
    tuner->slots[cluster->inputs[i]] = -1;
  return rabbet_ok();
}

// Counts, in the tuner's slots and from -1 on, how often the cluster reads each
// value; `begin` false: clears the slots.
static void cluster_count_uses(rabbet_tuner_t* tuner,
                               const rabbet_cluster_t* cluster, bool begin) {
  for (size_t i = 0; i < cluster->node_count; ++i)
    for (size_t k = 0; k < cluster->nodes[i]->input_count; ++k) {
      int32_t id = cluster->nodes[i]->inputs[k];
      if (id >= 0) tuner->slots[id] = begin ? tuner->slots[id] + 1 : -1;
    }
}

static rabbet_status_t cluster_outputs(rabbet_build_t* build,
                                       rabbet_cluster_t* cluster) {
  rabbet_tuner_t* tuner = build->tuner;
  size_t limit = 0;
  for (size_t i = 0; i < cluster->node_count; ++i)
    limit += cluster->nodes[i]->output_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, limit, sizeof(int32_t), (void**)&cluster->outputs));
  cluster_count_uses(tuner, cluster, true);
  for (size_t i = 0; i < cluster->node_count; ++i) {
    const rabbet_ir_node_t* node = cluster->nodes[i];
    for (size_t k = 0; k < node->output_count; ++k) {
      const rabbet_ir_value_t* value = rabbet_ir_output(&build->ir, node, k);
      if (value->output >= 0 || value->is_read_by_host ||
          value->uses > tuner->slots[value->id] + 1) {
        assert(tuner->output_places[value->id] < 0);
        tuner->output_places[value->id] = (int32_t)cluster->output_count;
        cluster->outputs[cluster->output_count++] = value->id;
      }
    }
  }
  assert(cluster->output_count <= limit);
  cluster_count_uses(tuner, cluster, false);
  return rabbet_ok();
}

// ---- All --------------------------------------------------------------------

static rabbet_status_t cluster_nodes(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  int32_t* ids = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, ir->nodes.count, sizeof(int32_t), (void**)&ids));
  RABBET_RETURN_IF_ERROR(rabbet_fuse_partition(build, ids));
  rabbet_cluster_t** by_id = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, ir->nodes.count, sizeof(*by_id), (void**)&by_id));
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    // The first node's index names a cluster, so clusters keep that order.
    assert(ids[i] >= 0 && (size_t)ids[i] <= i && ids[ids[i]] == ids[i]);
    assert(ir->nodes.data[i]->index == (int32_t)i);
    rabbet_cluster_t** place = &by_id[ids[i]];
    if (!*place)
      RABBET_RETURN_IF_ERROR(
          cluster_add(build, RABBET_CLUSTER_NODES, ids[i], place));
    (*place)->node_count++;
  }
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_cluster_t* cluster = by_id[ids[i]];
    if (!cluster->nodes) {
      RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
          &build->arena, cluster->node_count, sizeof(rabbet_ir_node_t*),
          (void**)&cluster->nodes));
      cluster->node_count = 0;
    }
    cluster->nodes[cluster->node_count++] = ir->nodes.data[i];
  }
  return rabbet_ok();
}

static void cluster_mark_makers(rabbet_build_t* build) {
  rabbet_tuner_t* tuner = build->tuner;
  for (size_t c = 0; c < tuner->clusters.count; ++c)
    for (size_t i = 0; i < tuner->clusters.data[c]->node_count; ++i) {
      const rabbet_ir_node_t* node = tuner->clusters.data[c]->nodes[i];
      for (size_t k = 0; k < node->output_count; ++k) {
        assert(tuner->makers[node->outputs[k]] < 0);
        tuner->makers[node->outputs[k]] = (int32_t)c;
      }
    }
}

static rabbet_status_t cluster_tables(rabbet_build_t* build) {
  rabbet_tuner_t* tuner = build->tuner;
  const rabbet_ir_t* ir = &build->ir;
  const struct {
    int32_t** table;
    size_t count;
  } tables[] = {{&tuner->makers, ir->values.count},
                {&tuner->output_places, ir->values.count},
                {&tuner->slots, ir->values.count},
                {&tuner->locals, ir->nodes.count}};
  for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); ++t) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate_array(&build->arena, tables[t].count,
                                    sizeof(int32_t), (void**)tables[t].table));
    for (size_t i = 0; i < tables[t].count; ++i)
      (*tables[t].table)[i] = -1;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_tune_cluster(rabbet_build_t* build) {
  rabbet_tuner_t* tuner = build->tuner;
  rabbet_ir_t* ir = &build->ir;
  RABBET_RETURN_IF_ERROR(cluster_tables(build));
  RABBET_RETURN_IF_ERROR(cluster_boundary(build, RABBET_CLUSTER_INPUT,
                                          ir->inputs, ir->input_count));
  assert(tuner->clusters.count == ir->input_count);
  RABBET_RETURN_IF_ERROR(cluster_nodes(build));
  cluster_mark_makers(build);
  for (size_t c = ir->input_count; c < tuner->clusters.count; ++c) {
    RABBET_RETURN_IF_ERROR(
        cluster_inputs(build, tuner->clusters.data[c], (int32_t)c));
    RABBET_RETURN_IF_ERROR(cluster_outputs(build, tuner->clusters.data[c]));
  }
  return cluster_boundary(build, RABBET_CLUSTER_OUTPUT, ir->outputs,
                          ir->output_count);
}

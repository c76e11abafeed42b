// Clusters of blocks, from compute capability 9 on. The blocks of a cluster run
// at the same time and write to each other's shared memory. The first
// `cluster_arrive` of a kernel says that the block has started, so that its
// shared memory exists.
#pragma once

#include "device/cuda/programs/number.cuh"

// Threads see the block's earlier writes after their next cluster_wait.
DEVICE void cluster_arrive() {
#ifdef RABBET_STAND_IN
  stand_in_cluster_arrive();
#else
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
// Waits until all threads of the cluster have arrived.
DEVICE void cluster_wait() {
#ifdef RABBET_STAND_IN
  stand_in_cluster_wait();
#else
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The address in block `rank` of the cluster that corresponds to `own`.
#ifdef RABBET_STAND_IN
typedef float* remote_t;
DEVICE remote_t remote_address(float* own, uint32_t rank) {
  return (float*)stand_in_cluster_address(own, rank);
}
DEVICE void store_remote(remote_t to, int at, float x, float y) {
  to[at] = x, to[at + 1] = y;
}
DEVICE void store_remote(remote_t to, int at, float x) { to[at] = x; }
#else
typedef uint32_t remote_t;
DEVICE remote_t remote_address(float* own, uint32_t rank) {
  remote_t y;
  asm("{\n.reg .u64 wide;\n.reg .u32 at;\ncvta.to.shared.u64 wide, %1;\n"
      "cvt.u32.u64 at, wide;\nmapa.shared::cluster.u32 %0, at, %2;\n}"
      : "=r"(y)
      : "l"(own), "r"(rank));
  return y;
}
DEVICE void store_remote(remote_t to, int at, float x, float y) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to + 4 * at),
               "f"(x), "f"(y)
               : "memory");
}
DEVICE void store_remote(remote_t to, int at, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to + 4 * at), "f"(x)
               : "memory");
}
#endif

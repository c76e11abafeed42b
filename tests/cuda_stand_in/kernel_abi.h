// The interface between a compiled kernel file (kernel_shim.h) and the driver
// that runs it (grid.c). Read as C++ by the one and as C by the other.
#ifndef RABBET_TESTS_CUDA_STAND_IN_KERNEL_ABI_H_
#define RABBET_TESTS_CUDA_STAND_IN_KERNEL_ABI_H_

#define STAND_IN_ABI 3
#define STAND_IN_CLUSTER 16  // blocks, at most

struct stand_in_uint3 {
  unsigned x, y, z;
};

// Operations that the lanes of a warp do together: each hands in `bytes` of a
// value, and gets that of one of them, or a mask.
enum stand_in_warp_op {
  STAND_IN_WARP_SYNC,
  STAND_IN_WARP_SHUFFLE,  // `from`: the lane whose value is wanted
  STAND_IN_WARP_BALLOT,   // of the lanes whose first byte is not zero
  // Tensor cores, of whole warps. ldmatrix.x4, with .trans or without: the
  // value is a row's address, then four words.
  STAND_IN_WARP_MATRICES,
  STAND_IN_WARP_MATRICES_TURNED,
  // mma.m16n8k16 of FP16 and BF16, mma.m16n8k8 of TF32: a stand_in_product,
  // whose sums are replaced.
  STAND_IN_WARP_MMA_HALF,
  STAND_IN_WARP_MMA_BF16,
  STAND_IN_WARP_MMA_TF32,
};

struct stand_in_product {
  float sums[4];
  unsigned a[4], b[2];
};

struct stand_in_runtime {
  void (*sync_threads)(void);
  // `value` is replaced; returns the ballot.
  unsigned (*warp)(unsigned mask, int op, void* value, unsigned bytes,
                   unsigned from);
  // The thread goes on when the kernel before is done (order.cuh).
  void (*await_previous)(void);
  // The barrier of all threads of the cluster, and where its block `rank` has
  // what lies at an address of one's own shared memory.
  void (*cluster_arrive)(void);
  void (*cluster_wait)(void);
  void* (*cluster_address)(void* own, unsigned rank);
  // A wrong use of the shim, told with the kernel's name; ends the launch.
  void (*fail)(const char* message);
};

// One in each kernel file, "stand_in_module": where the thread that runs is.
struct stand_in_module {
  unsigned abi;
  struct stand_in_uint3 thread, block, block_extent, grid_extent;
  unsigned lane;
  unsigned char* dynamic_shared;
  unsigned dynamic_shared_bytes;
  const struct stand_in_runtime* runtime;
};

// The table "stand_in_kernels", which a row without a name ends.
struct stand_in_kernel {
  const char* name;
  void (*call)(void** parameters);
  unsigned most_threads;  // of its launch bounds; 0: none
  unsigned count;         // of parameters
  const unsigned* sizes;
};

// An image (cubin): this, then a shared object.
struct stand_in_image {
  char magic[8];  // "SI-CUBIN"
  unsigned major, minor;
  unsigned long long size;
};
#define STAND_IN_CUBIN "SI-CUBIN"
// PTX: this line with the size in decimal, then the shared object in hex.
#define STAND_IN_PTX "// stand-in PTX "

#endif  // RABBET_TESTS_CUDA_STAND_IN_KERNEL_ABI_H_

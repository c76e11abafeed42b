// Asynchronous copies into shared memory, and loads of matrices from it into
// the layout of tensor cores (mma.cuh).
#pragma once

#include "device/cuda/programs/number.cuh"

struct __align__(16) chunk_t {  // 8 elements of 16 bits
  uint32_t w[4];
};

// An address in shared memory, in bytes.
#ifdef RABBET_STAND_IN
typedef unsigned char* shared_t;
DEVICE shared_t shared_address(void* shared) { return (shared_t)shared; }
#else
typedef uint32_t shared_t;
DEVICE shared_t shared_address(const void* shared) {
  uint64_t wide;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(wide) : "l"(shared));
  return (uint32_t)wide;
}
#endif

// Copies 16 bytes; if not `wanted`, stores zeros and does not read `from`.
DEVICE void copy_chunk(shared_t to, const void* from, bool wanted) {
#ifdef RABBET_STAND_IN
  chunk_t zeros = {{0, 0, 0, 0}};
  *(chunk_t*)to = wanted ? *(const chunk_t*)from : zeros;
#else
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
      "l"(from), "r"(wanted ? 16 : 0));
#endif
}
DEVICE void store_chunk(shared_t to, const chunk_t& x) {
#ifdef RABBET_STAND_IN
  *(chunk_t*)to = x;
#else
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(x.w[0]), "r"(x.w[1]), "r"(x.w[2]), "r"(x.w[3])
               : "memory");
#endif
}
// Makes a group of the thread's copies since the last call.
DEVICE void commit_copies() {
#ifndef RABBET_STAND_IN
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most PENDING groups of the thread are unfinished. Only this
// thread sees the copied data; others need a barrier.
template <int PENDING>
DEVICE void await_copies() {
#ifndef RABBET_STAND_IN
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Loads four matrices of 8 x 8 elements of 16 bits. Lane 8 i + r passes the
// address of row r of matrix i. words[i] gets the lane's elements of matrix i
// for mma.sync: row lane / 4, columns 2 (lane % 4) and the next. TURNED: the
// matrices are stored transposed.
template <bool TURNED>
DEVICE void load_matrices(uint32_t* words, shared_t row) {
#ifdef RABBET_STAND_IN
  stand_in_load_matrices(words, row, TURNED);
#else
  if (TURNED)
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
        : "r"(row)
        : "memory");
  else
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
        : "r"(row)
        : "memory");
#endif
}

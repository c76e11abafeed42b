#include "device/cuda/nccl/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/math.h"
#include "device/cuda/driver/stream.h"

// Memory that other processes map is no part of a block that the driver shares
// with other allocations.
enum { PEERS_ALIGNMENT = 2 << 20 };

// A rank's announcement to all others.
typedef struct peers_card_t {
  CUipcMemHandle handle;
  uint64_t host;
  int32_t process;
  int32_t ready;  // so far
} peers_card_t;

static uint64_t peers_host(void) {
  char text[64] = "";
  FILE* file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file) {
    size_t size = fread(text, 1, sizeof(text), file);
    fclose(file);
    return rabbet_hash64(text, size);
  }
  return 0;
}

// ---- Telling ----------------------------------------------------------------

typedef struct peers_talk_t {
  rabbet_device_t* device;
  const rabbet_nccl_t* library;
  const _Atomic(ncclComm_t)* comm;
  int ranks;
  void* stream;
  uint8_t* cards;  // device memory: those of all, then the own
} peers_talk_t;

static rabbet_status_t talk_begin(peers_talk_t* talk) {
  rabbet_device_t* device = talk->device;
  size_t bytes = (size_t)(talk->ranks + 1) * sizeof(peers_card_t);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_create_stream(device, &talk->stream));
  return device->vtable->allocate(device, bytes, (void**)&talk->cards);
}

static void talk_end(peers_talk_t* talk) {
  rabbet_device_t* device = talk->device;
  if (talk->cards) device->vtable->free(device, talk->cards);
  rabbet_cuda_destroy_stream(device, talk->stream);
}

// The communicator may be aborted, and freed, between two calls.
static rabbet_status_t talk_check(const peers_talk_t* talk,
                                  ncclComm_t* out_comm) {
  *out_comm = atomic_load(talk->comm);
  return *out_comm ? rabbet_ok()
                   : RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                                   "the exchanges with other ranks were given "
                                   "up");
}

// All ranks' cards, once all have told theirs.
static rabbet_status_t talk(const peers_talk_t* talk, const peers_card_t* own,
                            peers_card_t* all) {
  const rabbet_device_vtable_t* vtable = talk->device->vtable;
  size_t bytes = (size_t)talk->ranks * sizeof(*all);
  uint8_t* mine = talk->cards + bytes;
  ncclComm_t comm = NULL;
  RABBET_RETURN_IF_ERROR(vtable->copy_to_device(talk->device, mine, own,
                                                sizeof(*own), talk->stream));
  RABBET_RETURN_IF_ERROR(talk_check(talk, &comm));
  RABBET_RETURN_IF_ERROR(RABBET_NCCL(talk->library, comm, ncclAllGather,
                                     (mine, talk->cards, sizeof(*own), ncclInt8,
                                      comm, (cudaStream_t)talk->stream)));
  RABBET_RETURN_IF_ERROR(vtable->copy_to_host(talk->device, all, talk->cards,
                                              bytes, talk->stream));
  RABBET_RETURN_IF_ERROR(vtable->synchronize(talk->device, talk->stream));
  // An abort ends the kernel, whose output then is not all ranks'.
  return talk_check(talk, &comm);
}

// ---- Making -----------------------------------------------------------------

static bool peers_possible(const rabbet_cuda_device_t* device, int ranks) {
  const rabbet_cuda_driver_t* driver = device->driver;
  const char* asked = getenv("RABBET_CUDA_DIRECT");
  return !(asked && strcmp(asked, "0") == 0) && ranks <= DIRECT_RANKS &&
         device->major >= 7 && driver->cuIpcGetMemHandle &&
         driver->cuIpcOpenMemHandle && driver->cuIpcCloseMemHandle;
}

// A refusal of the driver makes the rank not ready: it is no error.
static bool peers_works(rabbet_status_t status) {
  bool works = rabbet_is_ok(status);
  rabbet_status_free(status);
  return works;
}

// The own area, empty.
static bool peers_open_own(rabbet_nccl_peers_t* peers, peers_card_t* card) {
  rabbet_cuda_device_t* device = peers->device;
  CUdeviceptr area = 0;
  size_t bytes = rabbet_align_up((size_t)DIRECT_AREA, (size_t)PEERS_ALIGNMENT);
  if (!peers_works(RABBET_CUDA_INSIDE(device, cuMemAlloc, (&area, bytes))))
    return false;
  peers->areas[peers->rank] = (char*)(uintptr_t)area;
  return peers_works(device->base.vtable->fill(
             &device->base, peers->areas[peers->rank], 0, bytes, NULL)) &&
         peers_works(device->base.vtable->synchronize(&device->base, NULL)) &&
         peers_works(RABBET_CUDA_INSIDE(device, cuIpcGetMemHandle,
                                        (&card->handle, area)));
}

static bool peers_open_others(rabbet_nccl_peers_t* peers,
                              const peers_card_t* cards) {
  for (int r = 0; r < peers->ranks; ++r)
    if (!cards[r].ready || cards[r].host != cards[peers->rank].host)
      return false;
  for (int r = 0; r < peers->ranks; ++r) {
    CUdeviceptr area = 0;
    if (r == peers->rank) continue;
    if (cards[r].process == cards[peers->rank].process ||
        !peers_works(RABBET_CUDA_INSIDE(
            peers->device, cuIpcOpenMemHandle,
            (&area, cards[r].handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))))
      return false;
    peers->areas[r] = (char*)(uintptr_t)area;
  }
  return true;
}

static bool peers_are_ready(const peers_card_t* cards, int ranks) {
  for (int r = 0; r < ranks; ++r)
    if (!cards[r].ready) return false;
  return true;
}

// Each rank tells twice, whatever it found, as others wait for it: of its own
// area, then whether it has all others'.
static rabbet_status_t peers_open(rabbet_nccl_peers_t* peers,
                                  const peers_talk_t* with, bool* out_ready) {
  peers_card_t card = {.host = peers_host(), .process = (int32_t)getpid()};
  peers_card_t* all = NULL;
  *out_ready = false;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(peers->device->base.allocator,
                                         (size_t)with->ranks * sizeof(*all),
                                         (void**)&all));
  // Of hosts that are not known nobody knows whether they are one.
  card.ready = card.host != 0 && peers_possible(peers->device, with->ranks) &&
               peers_open_own(peers, &card);
  rabbet_status_t status = talk(with, &card, all);
  if (rabbet_is_ok(status)) {
    card.ready =
        peers_are_ready(all, with->ranks) && peers_open_others(peers, all);
    status = talk(with, &card, all);
  }
  if (rabbet_is_ok(status)) *out_ready = peers_are_ready(all, with->ranks);
  rabbet_free(peers->device->base.allocator, all);
  return status;
}

rabbet_status_t rabbet_nccl_peers_create(rabbet_cuda_device_t* device,
                                         const rabbet_nccl_t* library,
                                         const _Atomic(ncclComm_t)* comm,
                                         int rank, int ranks,
                                         rabbet_nccl_peers_t** out_peers) {
  rabbet_nccl_peers_t* peers = NULL;
  peers_talk_t with = {.device = &device->base,
                       .library = library,
                       .comm = comm,
                       .ranks = ranks};
  bool ready = false;
  *out_peers = NULL;
  if (ranks < 2) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(device->base.allocator, sizeof(*peers), (void**)&peers));
  peers->device = device;
  peers->rank = rank;
  peers->ranks = ranks;
  rabbet_status_t status = talk_begin(&with);
  if (rabbet_is_ok(status)) status = peers_open(peers, &with, &ready);
  talk_end(&with);
  if (ready)
    *out_peers = peers;
  else
    rabbet_nccl_peers_destroy(peers);
  return status;
}

void rabbet_nccl_peers_destroy(rabbet_nccl_peers_t* peers) {
  if (!peers) return;
  for (int r = 0; r < DIRECT_RANKS; ++r) {
    CUdeviceptr area = (CUdeviceptr)(uintptr_t)peers->areas[r];
    if (area == 0) continue;
    rabbet_status_ignore(
        r == peers->rank
            ? RABBET_CUDA_INSIDE(peers->device, cuMemFree, (area))
            : RABBET_CUDA_INSIDE(peers->device, cuIpcCloseMemHandle, (area)));
  }
  rabbet_free(peers->device->base.allocator, peers);
}

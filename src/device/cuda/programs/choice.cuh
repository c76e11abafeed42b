// Kernels that are compiled one by one (rabbet_cuda_node_split).
//
// KERNEL(name, definition) is the definition if the program was compiled with
// -DKERNEL_name=0,1, and nothing otherwise. Templates that only absent kernels
// call are not instantiated.
#pragma once

#define KERNEL_KEEP_0(...)
#define KERNEL_KEEP_1(...) __VA_ARGS__
#define KERNEL_KEEP_(is_chosen, ...) KERNEL_KEEP_##is_chosen(__VA_ARGS__)
#define KERNEL_KEEP(is_chosen, ...) KERNEL_KEEP_(is_chosen, __VA_ARGS__)
// The second argument: that of the option, or the 0 behind a name without one.
#define KERNEL_SECOND_(first, second, ...) second
#define KERNEL_SECOND(...) KERNEL_SECOND_(__VA_ARGS__, 0, 0)
#define KERNEL(name, ...) KERNEL_KEEP(KERNEL_SECOND(KERNEL_##name), __VA_ARGS__)

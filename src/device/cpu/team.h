// Helpers of a thread: they take shares of its work while they are free, and it
// does the rest itself, so that it never waits for one to be woken.
#ifndef RABBET_SRC_DEVICE_CPU_TEAM_H_
#define RABBET_SRC_DEVICE_CPU_TEAM_H_

#include <stdbool.h>

#include "base/status.h"

typedef void (*rabbet_team_body_t)(void* data);

// Gives the calling thread helpers, so that it has `threads` threads in all.
// They end with the thread, or by rabbet_team_end; the child of a fork has none
// until it asks for them.
rabbet_status_t rabbet_team_begin(int threads);
void rabbet_team_end(void);
// Threads of the calling thread's team, itself included.
int rabbet_team_size(void);
// Whether helpers would take shares at once.
bool rabbet_team_is_awake(void);

// Counts the calling thread as one that computes, which leaves fewer processors
// for others' helpers.
void rabbet_team_count_owner(int change);

// Runs `body` once for each share; they are fewer if the system starts no more
// threads (rabbet_team_shares). A thread may run several, one after the other;
// shares may wait for each other in rabbet_team_barrier. In a share: the same
// as a single share.
void rabbet_team_run(rabbet_team_body_t body, void* data, int shares);

// Of the share that runs on this thread; 0 and 1 outside.
int rabbet_team_share(void);
int rabbet_team_shares(void);
// Whether this thread runs one of several shares.
bool rabbet_team_is_inside(void);
void rabbet_team_barrier(void);

#endif  // RABBET_SRC_DEVICE_CPU_TEAM_H_

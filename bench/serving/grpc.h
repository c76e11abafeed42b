// The client's side of gRPC on one connection, one unary call at a time: as
// much of HTTP/2 as servers need to answer, so that the load is that of the
// server.
#ifndef RABBET_BENCH_SERVING_GRPC_H_
#define RABBET_BENCH_SERVING_GRPC_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum grpc_answer_t {
  GRPC_NONE,     // not there yet
  GRPC_MESSAGE,  // the call has ended with a message
  GRPC_ERROR,    // or with a status alone
  GRPC_BROKEN,   // the connection has ended, or what came is no HTTP/2
} grpc_answer_t;

typedef struct grpc_t {
  int socket;
  const char* path;  // "/package.Service/Method"
  const void* message;
  size_t message_size;
  uint32_t stream;   // of the last call
  int64_t window;    // bytes that the server still takes
  bool is_waiting;   // for that, with the call
  bool has_message;  // of the last call
  bool is_known;     // the server has the headers in its table
  size_t size;       // of `received`
  uint8_t received[1 << 17];
} grpc_t;

// False if the connection does not take it.
bool grpc_open(grpc_t* grpc, int socket, const char* path, const void* message,
               size_t message_size);
bool grpc_call(grpc_t* grpc);
// Reads what has come.
grpc_answer_t grpc_receive(grpc_t* grpc);

#endif  // RABBET_BENCH_SERVING_GRPC_H_

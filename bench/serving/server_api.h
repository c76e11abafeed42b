// The part of Triton Inference Server's interface for programs that hold a
// server, which the load program uses. Written from its documentation.
#ifndef RABBET_BENCH_SERVING_SERVER_API_H_
#define RABBET_BENCH_SERVING_SERVER_API_H_

#include "triton/interface.h"

typedef struct TRITONSERVER_Server TRITONSERVER_Server;
typedef struct TRITONSERVER_ServerOptions TRITONSERVER_ServerOptions;
typedef struct TRITONSERVER_ResponseAllocator TRITONSERVER_ResponseAllocator;
typedef struct TRITONSERVER_InferenceRequest TRITONSERVER_InferenceRequest;
typedef struct TRITONSERVER_InferenceResponse TRITONSERVER_InferenceResponse;
typedef struct TRITONSERVER_InferenceTrace TRITONSERVER_InferenceTrace;

typedef enum TRITONSERVER_ModelControlMode {
  TRITONSERVER_MODEL_CONTROL_EXPLICIT = 2,
} TRITONSERVER_ModelControlMode;

typedef TRITONSERVER_Error* (*server_allocate_t)(
    TRITONSERVER_ResponseAllocator*, const char* name, size_t size,
    TRITONSERVER_MemoryType type, int64_t id, void* user_data, void** data,
    void** data_user_data, TRITONSERVER_MemoryType* actual_type,
    int64_t* actual_id);
typedef TRITONSERVER_Error* (*server_free_t)(TRITONSERVER_ResponseAllocator*,
                                             void* data, void* data_user_data,
                                             size_t size,
                                             TRITONSERVER_MemoryType type,
                                             int64_t id);
typedef void (*server_released_t)(TRITONSERVER_InferenceRequest*,
                                  uint32_t flags, void* user_data);
typedef void (*server_answered_t)(TRITONSERVER_InferenceResponse*,
                                  uint32_t flags, void* user_data);

// FUNCTION(name, arguments): all return TRITONSERVER_Error*.
#define SERVER_FUNCTIONS(FUNCTION)                                             \
  FUNCTION(ServerOptionsNew, (TRITONSERVER_ServerOptions**))                   \
  FUNCTION(ServerOptionsDelete, (TRITONSERVER_ServerOptions*))                 \
  FUNCTION(ServerOptionsSetModelRepositoryPath,                                \
           (TRITONSERVER_ServerOptions*, const char*))                         \
  FUNCTION(ServerOptionsSetBackendDirectory,                                   \
           (TRITONSERVER_ServerOptions*, const char*))                         \
  FUNCTION(ServerOptionsSetModelControlMode,                                   \
           (TRITONSERVER_ServerOptions*, TRITONSERVER_ModelControlMode))       \
  FUNCTION(ServerOptionsSetStartupModel,                                       \
           (TRITONSERVER_ServerOptions*, const char*))                         \
  FUNCTION(ServerOptionsSetStrictModelConfig,                                  \
           (TRITONSERVER_ServerOptions*, bool))                                \
  FUNCTION(ServerOptionsSetLogInfo, (TRITONSERVER_ServerOptions*, bool))       \
  FUNCTION(ServerNew, (TRITONSERVER_Server**, TRITONSERVER_ServerOptions*))    \
  FUNCTION(ServerStop, (TRITONSERVER_Server*))                                 \
  FUNCTION(ServerDelete, (TRITONSERVER_Server*))                               \
  FUNCTION(ServerModelStatistics, (TRITONSERVER_Server*, const char*, int64_t, \
                                   TRITONSERVER_Message**))                    \
  FUNCTION(MessageSerializeToJson,                                             \
           (TRITONSERVER_Message*, const char**, size_t*))                     \
  FUNCTION(MessageDelete, (TRITONSERVER_Message*))                             \
  FUNCTION(ResponseAllocatorNew, (TRITONSERVER_ResponseAllocator**,            \
                                  server_allocate_t, server_free_t, void*))    \
  FUNCTION(InferenceRequestNew, (TRITONSERVER_InferenceRequest**,              \
                                 TRITONSERVER_Server*, const char*, int64_t))  \
  FUNCTION(InferenceRequestDelete, (TRITONSERVER_InferenceRequest*))           \
  FUNCTION(InferenceRequestAddInput,                                           \
           (TRITONSERVER_InferenceRequest*, const char*,                       \
            TRITONSERVER_DataType, const int64_t*, uint64_t))                  \
  FUNCTION(InferenceRequestAppendInputData,                                    \
           (TRITONSERVER_InferenceRequest*, const char*, const void*, size_t,  \
            TRITONSERVER_MemoryType, int64_t))                                 \
  FUNCTION(InferenceRequestSetReleaseCallback,                                 \
           (TRITONSERVER_InferenceRequest*, server_released_t, void*))         \
  FUNCTION(InferenceRequestSetResponseCallback,                                \
           (TRITONSERVER_InferenceRequest*, TRITONSERVER_ResponseAllocator*,   \
            void*, server_answered_t, void*))                                  \
  FUNCTION(ServerInferAsync,                                                   \
           (TRITONSERVER_Server*, TRITONSERVER_InferenceRequest*,              \
            TRITONSERVER_InferenceTrace*))                                     \
  FUNCTION(InferenceResponseError, (TRITONSERVER_InferenceResponse*))          \
  FUNCTION(InferenceResponseDelete, (TRITONSERVER_InferenceResponse*))

#define SERVER_DECLARE(name, arguments) TRITONSERVER_Error*(*name)arguments;
typedef struct server_api_t {
  SERVER_FUNCTIONS(SERVER_DECLARE)
  const char* (*ErrorMessage)(TRITONSERVER_Error*);
} server_api_t;

#endif  // RABBET_BENCH_SERVING_SERVER_API_H_

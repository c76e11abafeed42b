// Load for servers: clients, each of which sends its next request of one row of
// FLOAT when its last one was answered. bench/README.md tells how to run it; it
// prints JSON. `http` and `grpc` speak KServe's V2 with binary tensors, as
// Triton does, `json` posts {"INPUT": [[numbers]]} to a path.
//
//   load http PORT MODEL INPUT COLUMNS CLIENTS SECONDS
//   load grpc PORT MODEL INPUT COLUMNS CLIENTS SECONDS
//   load json PORT PATH INPUT COLUMNS CLIENTS SECONDS
//   load process LIBRARY BACKENDS REPOSITORY MODEL INPUT COLUMNS CLIENTS
//   SECONDS
//
// `process` holds the server itself: no protocol is between.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "grpc.h"
#include "server_api.h"

enum { MOST_CLIENTS = 1024, MOST_TIMES = 1 << 22, ANSWER = 1 << 16 };

typedef struct load_t {
  const char *model, *input;
  int columns, clients;
  double seconds;
  uint64_t errors;
  size_t time_count;
  float* times;  // of requests, in microseconds
} load_t;

__attribute__((noreturn, format(printf, 1, 2))) static void die(
    const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void load_add(load_t* load, double begin) {
  if (load->time_count < MOST_TIMES)
    load->times[load->time_count++] = (float)((now() - begin) * 1e6);
}

static int compare_floats(const void* a, const void* b) {
  float x = *(const float*)a, y = *(const float*)b;
  return (x > y) - (x < y);
}

static void load_print(load_t* load, double seconds, const char* statistics) {
  size_t n = load->time_count;
  if (n == 0) die("no request was answered");
  qsort(load->times, n, sizeof(*load->times), compare_floats);
  printf(
      "{\"requests\": %zu, \"errors\": %llu, \"seconds\": %.6f, "
      "\"median_us\": %.1f, \"p99_us\": %.1f, \"statistics\": %s}\n",
      n, (unsigned long long)load->errors, seconds, (double)load->times[n / 2],
      (double)load->times[n * 99 / 100], statistics);
}

// ---- HTTP, gRPC

typedef struct http_client_t {
  int socket;
  grpc_t* grpc;  // NULL: HTTP
  bool failed;
  double begin;
  size_t received, expected;  // expected: 0 until the header is read
  bool chunked;               // then expected is the header's size
  char answer[ANSWER];
} http_client_t;

static char* http_request(const load_t* load, size_t* out_size) {
  char json[512];
  size_t bytes = (size_t)load->columns * sizeof(float);
  int header = snprintf(
      json, sizeof(json),
      "{\"inputs\":[{\"name\":\"%s\",\"shape\":[1,%d],\"datatype\":\"FP32\","
      "\"parameters\":{\"binary_data_size\":%zu}}],"
      "\"parameters\":{\"binary_data_output\":true}}",
      load->input, load->columns, bytes);
  char* text = calloc(1, 1024 + (size_t)header + bytes);
  if (!text) die("no memory");
  int size = sprintf(text,
                     "POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\n"
                     "Inference-Header-Content-Length: %d\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     load->model, header, (size_t)header + bytes, json);
  for (int i = 0; i < load->columns; ++i) {
    float value = (float)(i % 7) * 0.1f;
    memcpy(text + size + (size_t)i * sizeof(float), &value, sizeof(value));
  }
  *out_size = (size_t)size + bytes;
  return text;
}

static uint8_t* put_varint(uint8_t* at, uint64_t value) {
  for (; value > 127; value >>= 7)
    *at++ = (uint8_t)(value | 128);
  *at++ = (uint8_t)value;
  return at;
}

// Of bytes, in protobuf. data: NULL leaves room.
static uint8_t* put_field(uint8_t* at, int number, const void* data,
                          size_t size) {
  *at++ = (uint8_t)(number << 3 | 2);
  at = put_varint(at, size);
  if (data) memcpy(at, data, size);
  return at + size;
}

// KServe's V2: a ModelInferRequest with its tensor's bytes behind.
static char* grpc_request(const load_t* load, size_t* out_size) {
  const size_t bytes = (size_t)load->columns * sizeof(float);
  uint8_t tensor[600], *at = tensor;
  uint8_t* text = calloc(1, 2048 + bytes);
  if (!text) die("no memory");
  at = put_field(at, 1, load->input, strlen(load->input));
  at = put_field(at, 2, "FP32", 4);
  *at++ = 3 << 3 | 2;  // the shape, packed
  uint8_t* size = at++;
  *at++ = 1;
  at = put_varint(at, (uint64_t)load->columns);
  *size = (uint8_t)(at - size - 1);
  uint8_t* end = put_field(text, 1, load->model, strlen(load->model));
  end = put_field(end, 5, tensor, (size_t)(at - tensor));
  end = put_field(end, 7, NULL, bytes) - bytes;
  for (int i = 0; i < load->columns; ++i) {
    float value = (float)(i % 7) * 0.1f;
    memcpy(end + (size_t)i * sizeof(float), &value, sizeof(value));
  }
  *out_size = (size_t)(end - text) + bytes;
  return (char*)text;
}

static void http_send(http_client_t* client, const char* text, size_t size) {
  client->received = client->expected = 0;
  client->begin = now();
  if (client->grpc) {
    if (!grpc_call(client->grpc)) die("gRPC: %s", strerror(errno));
    return;
  }
  while (size > 0) {
    ssize_t sent = send(client->socket, text, size, MSG_NOSIGNAL);
    if (sent < 0) die("send: %s", strerror(errno));
    text += sent;
    size -= (size_t)sent;
  }
}

static char* json_request(const load_t* load, size_t* out_size) {
  size_t room = 1024 + (size_t)load->columns * 8;
  char* body = malloc(room);
  char* text = malloc(2 * room);
  if (!text || !body) die("no memory");
  int size = snprintf(body, room, "{\"%.256s\": [[", load->input);
  for (int i = 0; i < load->columns; ++i)
    size += sprintf(body + size, i ? ", %.1f" : "%.1f", (i % 7) * 0.1);
  size += sprintf(body + size, "]]}");
  *out_size = (size_t)snprintf(text, 2 * room,
                               "POST %.256s HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Type: application/json\r\n"
                               "Content-Length: %d\r\n\r\n%s",
                               load->model, size, body);
  free(body);
  return text;
}

// Whether the answer is complete.
static bool http_receive(http_client_t* client) {
  if (client->grpc) {
    const grpc_answer_t answer = grpc_receive(client->grpc);
    if (answer == GRPC_BROKEN) die("the server closed a connection");
    client->failed = answer == GRPC_ERROR;
    return answer != GRPC_NONE;
  }
  ssize_t size = recv(client->socket, client->answer + client->received,
                      ANSWER - 1 - client->received, 0);
  if (size <= 0) die("the server closed a connection");
  client->received += (size_t)size;
  client->answer[client->received] = 0;
  if (!client->expected) {
    const char* end = strstr(client->answer, "\r\n\r\n");
    const char* length = strcasestr(client->answer, "content-length:");
    if (!end) return false;
    // Another header ends alike.
    while (length && length[-1] == '-')
      length = strcasestr(length + 1, "content-length:");
    const char* chunked = strcasestr(client->answer, "chunked");
    client->chunked = chunked && chunked < end;
    if (!client->chunked && (!length || length > end))
      die("an answer without a length: %.300s", client->answer);
    if (client->chunked)
      client->expected = (size_t)(end + 4 - client->answer);
    else
      client->expected = (size_t)(end + 4 - client->answer) +
                         strtoul(length + strlen("content-length:"), NULL, 10);
  }
  if (!client->chunked) return client->received >= client->expected;
  static const char last[] = "0\r\n\r\n";  // the chunk that ends an answer
  size_t size_of_last = sizeof(last) - 1;
  return client->received >= client->expected + size_of_last &&
         memcmp(client->answer + client->received - size_of_last, last,
                size_of_last) == 0;
}

static void http_connect(http_client_t* client, int port, int poll, int index) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int one = 1;
  client->socket = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(client->socket, (struct sockaddr*)&address, sizeof(address)))
    die("connect: %s", strerror(errno));
  setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)index};
  epoll_ctl(poll, EPOLL_CTL_ADD, client->socket, &event);
}

static void http_run(load_t* load, int port,
                     char* (*request)(const load_t*, size_t*)) {
  size_t size = 0;
  char* text = request(load, &size);
  int poll = epoll_create1(0);
  http_client_t* clients = calloc((size_t)load->clients, sizeof(*clients));
  if (!clients) die("no memory");
  for (int i = 0; i < load->clients; ++i) {
    http_connect(&clients[i], port, poll, i);
    if (request != grpc_request) continue;
    clients[i].grpc = calloc(1, sizeof(*clients[i].grpc));
    if (!clients[i].grpc ||
        !grpc_open(clients[i].grpc, clients[i].socket,
                   "/inference.GRPCInferenceService/ModelInfer", text, size))
      die("gRPC takes no message of %zu bytes", size);
  }
  double begin = now();
  for (int i = 0; i < load->clients; ++i)
    http_send(&clients[i], text, size);
  for (int left = load->clients; left > 0;) {
    struct epoll_event events[64];
    int count = epoll_wait(poll, events, 64, 10000);
    if (count <= 0) die("no answer in 10 s");
    bool ends = now() - begin > load->seconds;
    for (int i = 0; i < count; ++i) {
      http_client_t* client = &clients[events[i].data.u32];
      if (!http_receive(client)) continue;
      load_add(load, client->begin);
      load->errors += client->grpc
                          ? client->failed
                          : memcmp(client->answer, "HTTP/1.1 200", 12) != 0;
      if (ends)
        --left;
      else
        http_send(client, text, size);
    }
  }
  load_print(load, now() - begin, "null");
  for (int i = 0; i < load->clients; ++i) {
    free(clients[i].grpc);
    close(clients[i].socket);
  }
  close(poll);
  free(clients);
  free(text);
}

// ---- The server in this process

typedef struct process_client_t {
  struct process_t* process;
  TRITONSERVER_InferenceRequest* request;
  TRITONSERVER_InferenceResponse* response;
  double begin;
  int missing;  // of the answer and the release
  float* input;
  char output[4096];
} process_client_t;

typedef struct process_t {
  TRITONSERVER_Server* server;
  pthread_mutex_t lock;
  pthread_cond_t some;
  int done[MOST_CLIENTS], done_count;
  process_client_t* clients;
} process_t;

// Opened once, for the whole process.
static server_api_t api;

static void process_check(TRITONSERVER_Error* error) {
  if (error) die("%s", api.ErrorMessage(error));
}

static void process_open(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) die("%s", dlerror());
#define SERVER_FIND(name, arguments)                          \
  *(void**)&api.name = dlsym(library, "TRITONSERVER_" #name); \
  if (!api.name) die("%s", dlerror());
  SERVER_FUNCTIONS(SERVER_FIND)
  SERVER_FIND(ErrorMessage, )
}

static void process_finish(process_client_t* client) {
  process_t* process = client->process;
  pthread_mutex_lock(&process->lock);
  if (--client->missing == 0) {
    process->done[process->done_count++] = (int)(client - process->clients);
    if (process->done_count == 1) pthread_cond_signal(&process->some);
  }
  pthread_mutex_unlock(&process->lock);
}

static void process_released(TRITONSERVER_InferenceRequest* request,
                             uint32_t flags, void* user_data) {
  (void)request, (void)flags;
  process_finish(user_data);
}

static void process_answered(TRITONSERVER_InferenceResponse* response,
                             uint32_t flags, void* user_data) {
  process_client_t* client = user_data;
  (void)flags;
  client->response = response;
  process_finish(client);
}

static TRITONSERVER_Error* process_allocate(
    TRITONSERVER_ResponseAllocator* allocator, const char* name, size_t size,
    TRITONSERVER_MemoryType type, int64_t id, void* user_data, void** data,
    void** data_user_data, TRITONSERVER_MemoryType* actual_type,
    int64_t* actual_id) {
  process_client_t* client = user_data;
  (void)allocator, (void)name, (void)type, (void)id;
  if (size > sizeof(client->output)) die("an output has %zu bytes", size);
  *data = client->output;
  *data_user_data = NULL;
  *actual_type = TRITONSERVER_MEMORY_CPU;
  *actual_id = 0;
  return NULL;
}

static TRITONSERVER_Error* process_free(
    TRITONSERVER_ResponseAllocator* allocator, void* data, void* data_user_data,
    size_t size, TRITONSERVER_MemoryType type, int64_t id) {
  (void)allocator, (void)data, (void)data_user_data;
  (void)size, (void)type, (void)id;
  return NULL;
}

static void process_start(process_t* process, const char* backends,
                          const char* repository, const char* model) {
  TRITONSERVER_ServerOptions* options = NULL;
  process_check(api.ServerOptionsNew(&options));
  process_check(api.ServerOptionsSetModelRepositoryPath(options, repository));
  process_check(api.ServerOptionsSetBackendDirectory(options, backends));
  process_check(api.ServerOptionsSetModelControlMode(
      options, TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  process_check(api.ServerOptionsSetStartupModel(options, model));
  // Configurations may be completed.
  process_check(api.ServerOptionsSetStrictModelConfig(options, false));
  process_check(api.ServerOptionsSetLogInfo(options, false));
  process_check(api.ServerNew(&process->server, options));
  process_check(api.ServerOptionsDelete(options));
}

static void process_make_client(process_t* process, const load_t* load,
                                TRITONSERVER_ResponseAllocator* allocator,
                                process_client_t* client) {
  size_t bytes = (size_t)load->columns * sizeof(float);
  const int64_t dims[] = {1, load->columns};
  client->process = process;
  client->input = calloc(1, bytes);
  if (!client->input) die("no memory");
  for (int i = 0; i < load->columns; ++i)
    client->input[i] = (float)(i % 7) * 0.1f;
  process_check(api.InferenceRequestNew(&client->request, process->server,
                                        load->model, -1));
  process_check(api.InferenceRequestAddInput(client->request, load->input,
                                             TRITONSERVER_TYPE_FP32, dims, 2));
  process_check(api.InferenceRequestAppendInputData(
      client->request, load->input, client->input, bytes,
      TRITONSERVER_MEMORY_CPU, 0));
  process_check(api.InferenceRequestSetReleaseCallback(
      client->request, process_released, client));
  process_check(api.InferenceRequestSetResponseCallback(
      client->request, allocator, client, process_answered, client));
}

static void process_send(process_client_t* client) {
  client->missing = 2;
  client->response = NULL;
  client->begin = now();
  process_check(
      api.ServerInferAsync(client->process->server, client->request, NULL));
}

static void process_take(process_client_t* client, load_t* load) {
  load_add(load, client->begin);
  if (!client->response || api.InferenceResponseError(client->response))
    ++load->errors;
  if (client->response)
    process_check(api.InferenceResponseDelete(client->response));
}

static double process_loop(process_t* process, load_t* load, double seconds) {
  double begin = now();
  for (int i = 0; i < load->clients; ++i)
    process_send(&process->clients[i]);
  for (int left = load->clients; left > 0;) {
    int done[MOST_CLIENTS], count = 0;
    pthread_mutex_lock(&process->lock);
    while (process->done_count == 0)
      pthread_cond_wait(&process->some, &process->lock);
    count = process->done_count;
    memcpy(done, process->done, (size_t)count * sizeof(*done));
    process->done_count = 0;
    pthread_mutex_unlock(&process->lock);
    bool ends = now() - begin > seconds;
    for (int i = 0; i < count; ++i) {
      process_take(&process->clients[done[i]], load);
      if (ends)
        --left;
      else
        process_send(&process->clients[done[i]]);
    }
  }
  return now() - begin;
}

static void process_run(load_t* load, char** paths) {
  static process_t process = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .some = PTHREAD_COND_INITIALIZER};
  TRITONSERVER_ResponseAllocator* allocator = NULL;
  TRITONSERVER_Message* message = NULL;
  const char* text = NULL;
  size_t size = 0;
  process_open(paths[0]);
  process_start(&process, paths[1], paths[2], load->model);
  process_check(api.ResponseAllocatorNew(&allocator, process_allocate,
                                         process_free, NULL));
  process.clients = calloc((size_t)load->clients, sizeof(*process.clients));
  if (!process.clients) die("no memory");
  for (int i = 0; i < load->clients; ++i)
    process_make_client(&process, load, allocator, &process.clients[i]);
  process_loop(&process, load, load->seconds / 4);
  load->time_count = load->errors = 0;
  double seconds = process_loop(&process, load, load->seconds);
  process_check(
      api.ServerModelStatistics(process.server, load->model, -1, &message));
  process_check(api.MessageSerializeToJson(message, &text, &size));
  char* statistics = strndup(text, size);
  load_print(load, seconds, statistics ? statistics : "null");
  free(statistics);
  process_check(api.MessageDelete(message));
  for (int i = 0; i < load->clients; ++i) {
    process_check(api.InferenceRequestDelete(process.clients[i].request));
    free(process.clients[i].input);
  }
  free(process.clients);
  process_check(api.ServerStop(process.server));
  process_check(api.ServerDelete(process.server));
}

int main(int argc, char** argv) {
  bool json = argc == 8 && strcmp(argv[1], "json") == 0;
  bool grpc = argc == 8 && strcmp(argv[1], "grpc") == 0;
  bool http = json || grpc || (argc == 8 && strcmp(argv[1], "http") == 0);
  if (!http && (argc != 10 || strcmp(argv[1], "process") != 0))
    die("usage: the first lines of load.c");
  char** rest = argv + (http ? 3 : 5);
  load_t load = {.model = rest[0],
                 .input = rest[1],
                 .columns = atoi(rest[2]),
                 .clients = atoi(rest[3]),
                 .seconds = atof(rest[4]),
                 .times = calloc(MOST_TIMES, sizeof(float))};
  if (!load.times) die("no memory");
  if (load.columns < 1 || load.clients < 1 || load.clients > MOST_CLIENTS)
    die("%s columns, %s clients", rest[2], rest[3]);
  if (strlen(load.model) > 256 || strlen(load.input) > 256)
    die("names have at most 256 bytes");
  if (http)
    http_run(&load, atoi(argv[2]),
             json   ? json_request
             : grpc ? grpc_request
                    : http_request);
  else
    process_run(&load, argv + 2);
  free(load.times);
  return 0;
}

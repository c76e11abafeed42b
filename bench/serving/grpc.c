#include "grpc.h"

#include <string.h>
#include <sys/socket.h>

enum {
  FRAME_DATA = 0,
  FRAME_HEADERS = 1,
  FRAME_RESET = 3,
  FRAME_SETTINGS = 4,
  FRAME_PING = 6,
  FRAME_GOAWAY = 7,
  FRAME_WINDOW = 8,
  FLAG_END = 1,  // of a stream; of settings and pings: an acknowledgement
  FLAG_HEADERS_END = 4,
  HEAD = 9,
  PREFIX = 5,  // of a message: not compressed, its size
  FIRST_WINDOW = 65535,
  MOST_MESSAGE = 1 << 14,  // a frame's size that needs no leave
};

static void put_32(uint8_t* at, uint32_t value) {
  for (int i = 0; i < 4; ++i)
    at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get_32(const uint8_t* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i)
    value = value << 8 | at[i];
  return value;
}

// A frame's head; its content follows.
static uint8_t* put_head(uint8_t* at, size_t size, int type, int flags,
                         uint32_t stream) {
  put_32(at, (uint32_t)size << 8);
  at[3] = (uint8_t)type;
  at[4] = (uint8_t)flags;
  put_32(at + 5, stream);
  return at + HEAD;
}

static bool grpc_send(const grpc_t* grpc, const uint8_t* data, size_t size) {
  while (size > 0) {
    ssize_t sent = send(grpc->socket, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= (size_t)sent;
  }
  return true;
}

bool grpc_open(grpc_t* grpc, int socket, const char* path, const void* message,
               size_t message_size) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  uint8_t data[sizeof(preface) - 1 + 2 * HEAD + 4], *at = data;
  memset(grpc, 0, sizeof(*grpc));
  grpc->socket = socket;
  grpc->path = path;
  grpc->message = message;
  grpc->message_size = message_size;
  grpc->window = FIRST_WINDOW;
  if (message_size + PREFIX > MOST_MESSAGE) return false;
  memcpy(at, preface, sizeof(preface) - 1);
  at = put_head(at + sizeof(preface) - 1, 0, FRAME_SETTINGS, 0, 0);
  // Answers of a whole run fit into the largest window.
  put_32(put_head(at, 4, FRAME_WINDOW, 0, 0), INT32_MAX - FIRST_WINDOW);
  return grpc_send(grpc, data, sizeof(data));
}

// A text of less than 127 bytes.
static uint8_t* put_text(uint8_t* at, const char* text) {
  const size_t size = strlen(text);
  *at++ = (uint8_t)size;
  memcpy(at, text, size);
  return at + size;
}

// Headers go into the server's table with the first call; later ones name their
// places there, as clients of gRPC do.
static uint8_t* put_headers(grpc_t* grpc, uint8_t* at) {
  enum { COUNT = 6, LAST_PLACE = 62, LITERAL = 0x40, PLACE = 0x80 };
  const char* const headers[COUNT][2] = {
      {":method", "POST"},   {":scheme", "http"},
      {":path", grpc->path}, {":authority", "localhost"},
      {"te", "trailers"},    {"content-type", "application/grpc"},
  };
  for (int i = 0; i < COUNT; ++i) {
    if (grpc->is_known) {
      *at++ = (uint8_t)(PLACE | (LAST_PLACE + COUNT - 1 - i));
    } else {
      *at++ = LITERAL;
      at = put_text(put_text(at, headers[i][0]), headers[i][1]);
    }
  }
  grpc->is_known = true;
  return at;
}

bool grpc_call(grpc_t* grpc) {
  uint8_t data[2 * HEAD + 1024 + MOST_MESSAGE];
  const size_t size = PREFIX + grpc->message_size;
  grpc->has_message = false;
  grpc->is_waiting = grpc->window < (int64_t)size;
  if (grpc->is_waiting) return true;
  grpc->window -= (int64_t)size;
  grpc->stream = grpc->stream ? grpc->stream + 2 : 1;
  uint8_t* at = put_headers(grpc, data + HEAD);
  put_head(data, (size_t)(at - data) - HEAD, FRAME_HEADERS, FLAG_HEADERS_END,
           grpc->stream);
  at = put_head(at, size, FRAME_DATA, FLAG_END, grpc->stream);
  *at++ = 0;
  put_32(at, (uint32_t)grpc->message_size);
  memcpy(at + 4, grpc->message, grpc->message_size);
  return grpc_send(grpc, data, (size_t)(at + 4 - data) + grpc->message_size);
}

static bool grpc_acknowledge(const grpc_t* grpc, int type, const uint8_t* data,
                             size_t size) {
  uint8_t answer[HEAD + 8];
  if (size > 8) return false;
  if (size) memcpy(answer + HEAD, data, size);
  put_head(answer, size, type, FLAG_END, 0);
  return grpc_send(grpc, answer, HEAD + size);
}

static grpc_answer_t grpc_take(grpc_t* grpc, int type, int flags,
                               uint32_t stream, const uint8_t* data,
                               size_t size) {
  const bool is_ours = stream == grpc->stream && stream != 0;
  switch (type) {
    case FRAME_DATA:
      if (is_ours && size) grpc->has_message = true;
      break;
    case FRAME_RESET:
      return is_ours ? GRPC_ERROR : GRPC_NONE;
    case FRAME_SETTINGS:
      if (!(flags & FLAG_END) && !grpc_acknowledge(grpc, type, NULL, 0))
        return GRPC_BROKEN;
      break;
    case FRAME_PING:
      if (!(flags & FLAG_END) && !grpc_acknowledge(grpc, type, data, size))
        return GRPC_BROKEN;
      break;
    case FRAME_GOAWAY:
      return GRPC_BROKEN;
    case FRAME_WINDOW:
      if (size != 4) return GRPC_BROKEN;
      if (stream == 0) grpc->window += get_32(data);
      if (grpc->is_waiting && !grpc_call(grpc)) return GRPC_BROKEN;
      break;
    default:
      break;
  }
  if (!is_ours || !(flags & FLAG_END) ||
      (type != FRAME_HEADERS && type != FRAME_DATA))
    return GRPC_NONE;
  return grpc->has_message ? GRPC_MESSAGE : GRPC_ERROR;
}

grpc_answer_t grpc_receive(grpc_t* grpc) {
  ssize_t count = recv(grpc->socket, grpc->received + grpc->size,
                       sizeof(grpc->received) - grpc->size, 0);
  size_t done = 0;
  grpc_answer_t answer = GRPC_NONE;
  if (count <= 0) return GRPC_BROKEN;
  grpc->size += (size_t)count;
  while (answer != GRPC_BROKEN && grpc->size - done >= HEAD) {
    const uint8_t* frame = grpc->received + done;
    const size_t size = get_32(frame) >> 8;
    if (size > sizeof(grpc->received) - HEAD) return GRPC_BROKEN;
    if (grpc->size - done < HEAD + size) break;
    const grpc_answer_t found =
        grpc_take(grpc, frame[3], frame[4], get_32(frame + 5) & INT32_MAX,
                  frame + HEAD, size);
    if (found != GRPC_NONE) answer = found;
    done += HEAD + size;
  }
  memmove(grpc->received, grpc->received + done, grpc->size - done);
  grpc->size -= done;
  return answer;
}

// Tiles of AMX: 16 rows of 64 bytes, and their sums.
#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES_VECTOR 64
#include "device/cpu/bytes/loops.inc"

// AHEAD: bytes of weights that are fetched before they are read.
enum { TILE_ROWS = 16, TILE_BYTES = 64, TILES = 8, AHEAD = 8192 };

typedef struct amx_config_t {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} amx_config_t;

// Sums are tiles 0 to 3, rows 4 and 5, weights 6 and 7.
static void amx_configure(int rows) {
  amx_config_t config = {.palette = 1};
  int low = rows > TILE_ROWS ? rows - TILE_ROWS : TILE_ROWS;
  int high = rows > TILE_ROWS ? TILE_ROWS : rows;
  const uint8_t tile_rows[TILES] = {(uint8_t)high, (uint8_t)high, (uint8_t)low,
                                    (uint8_t)low,  (uint8_t)high, (uint8_t)low,
                                    TILE_ROWS,     TILE_ROWS};
  for (int i = 0; i < TILES; ++i) {
    config.rows[i] = tile_rows[i];
    config.bytes[i] = TILE_BYTES;
  }
  _tile_loadconfig(&config);
}

static void amx_end(void) {
  _tile_release();
}

#define AMX_STEP(dot, two_rows, two_columns)                     \
  for (int64_t k = 0; k < depth; k += TILE_BYTES) {              \
    _tile_loadd(4, first + k, stride);                           \
    _tile_loadd(6, panel, line);                                 \
    dot(0, 4, 6);                                                \
    if (two_columns) {                                           \
      _tile_loadd(7, panel + TILE_BYTES, line);                  \
      dot(1, 4, 7);                                              \
    }                                                            \
    if (two_rows) {                                              \
      _tile_loadd(5, second + k, stride);                        \
      dot(2, 5, 6);                                              \
      if (two_columns) dot(3, 5, 7);                             \
    }                                                            \
    for (int64_t i = 0; i < TILE_ROWS * line; i += TILE_BYTES)   \
      _mm_prefetch((const char*)panel + AHEAD + i, _MM_HINT_T0); \
    panel += TILE_ROWS * line;                                   \
  }

static inline __attribute__((always_inline)) void amx_product(
    const rabbet_bytes_rows_t* a, const int8_t* panel, int64_t depth,
    bool two_rows, bool two_columns, int32_t* sums) {
  enum { line = RABBET_BYTES_COLUMNS * RABBET_BYTES_QUAD };
  const int64_t stride = a->stride, out = sizeof(int32_t) * LANES;
  const char *first = a->data, *second = first + TILE_ROWS * stride;
  int32_t* below = sums + TILE_ROWS * LANES;
  _tile_zero(0);
  if (two_columns) _tile_zero(1);
  if (two_rows) _tile_zero(2);
  if (two_rows && two_columns) _tile_zero(3);
  if (a->is_signed) {
    AMX_STEP(_tile_dpbssd, two_rows, two_columns)
  } else {
    AMX_STEP(_tile_dpbusd, two_rows, two_columns)
  }
  _tile_stored(0, sums, out);
  if (two_columns) _tile_stored(1, sums + LANES / 2, out);
  if (two_rows) _tile_stored(2, below, out);
  if (two_rows && two_columns) _tile_stored(3, below + LANES / 2, out);
}

static void amx_multiply(const rabbet_bytes_rows_t* a, const int8_t* panel,
                         int64_t depth, int columns, int32_t* sums) {
  if (*a->tile_rows != a->rows) amx_configure(*a->tile_rows = a->rows);
  bool two_rows = a->rows > TILE_ROWS, two_columns = columns > LANES / 2;
  if (two_rows && two_columns)
    amx_product(a, panel, depth, true, true, sums);
  else if (two_rows)
    amx_product(a, panel, depth, true, false, sums);
  else if (two_columns)
    amx_product(a, panel, depth, false, true, sums);
  else
    amx_product(a, panel, depth, false, false, sums);
}

const rabbet_bytes_kernels_t rabbet_bytes_amx = {
    .name = "amx",
    .step = TILE_BYTES,
    .element = 1,
    .end = amx_end,
    .multiply = amx_multiply,
    .finish = bytes_finish,
    .maxima = bytes_maxima,
    .copy = bytes_copy,
};

// Linux keeps the tiles of a process that asked for them.
bool rabbet_bytes_has_amx(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

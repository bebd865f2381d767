/* The matrix unit of Intel's server processors (AMX), where there is one: 16 rows of activations by a block of weights,
 * exactly, in one instruction. Worth it from 16 rows on. */
#pragma once

#include <stdint.h>

enum { MATRIX_ROWS = 16 };

#if defined(__AMX_INT8__) && defined(__linux__)

#include <immintrin.h>
#include <sys/syscall.h>

long syscall(long number, ...); /* which ISO C's <unistd.h> does not show */

/* Whether the system lets this process use it; asked once (arch_prctl(2), ARCH_REQ_XCOMP_PERM of XTILEDATA). */
static inline int matrix_there(void) {
    static _Atomic int there = -1; /* threads that ask at once are told the same */
    if (there < 0) there = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
    return there;
}

/* This thread begins and ends to use it. */
static inline void matrix_begin(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } of = {.palette = 1, .bytes = {64, 64, 64}, .rows = {16, 16, 16}};
    _tile_loadconfig(&of);
}

static inline void matrix_end(void) { _tile_release(); }

/* result[r][o] = Σ over 64 inputs of levels[r][i] · weights[i / 4][o][i % 4] */
static inline void matrix_multiply(const int8_t *levels, const int8_t *weights, int32_t *result) {
    _tile_zero(0);
    _tile_loadd(1, levels, 64);
    _tile_loadd(2, weights, 64);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, result, 64);
}

#else

static inline int matrix_there(void) { return 0; }
static inline void matrix_begin(void) {}
static inline void matrix_end(void) {}
static inline void matrix_multiply(const int8_t *levels, const int8_t *weights, int32_t *result) {
    (void)levels, (void)weights, (void)result;
}

#endif

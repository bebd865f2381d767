/* Sixteen floats at a time. Every operation is exactly rounded, lane by lane, so what a lane holds depends on no
 * other lane; sums over lanes pair them in one fixed order. */
#pragma once

#include "wide.h"

enum { LANES = 16 };

typedef struct {
    floats part[PARTS];
} lanes;

#define EACH_PART _Pragma("GCC unroll 2") for (int p = 0; p < PARTS; p++)

INLINE lanes lanes_load(const float *from) {
    lanes result;
    EACH_PART result.part[p] = floats_load(from + p * PART);
    return result;
}

INLINE void lanes_store(float *to, lanes a) { EACH_PART floats_store(to + p * PART, a.part[p]); }

INLINE lanes lanes_load_half(const uint16_t *from) {
    lanes result;
    EACH_PART result.part[p] = floats_of_halves(from + p * PART);
    return result;
}

INLINE lanes lanes_of_ints(const int32_t *from) {
    lanes result;
    EACH_PART result.part[p] = floats_of_ints(bytes_load(from + p * PART));
    return result;
}

/* To the nearest half; what is beyond its range becomes the greatest of it, never infinite. NaN stays
 * NaN: the second operand is what these take then. */
INLINE void lanes_store_half(uint16_t *to, lanes a) {
    EACH_PART halves_store(to + p * PART,
                           floats_min(floats_all(65504.0f), floats_max(floats_all(-65504.0f), a.part[p])));
}

INLINE lanes lanes_all(float value) {
    lanes result;
    EACH_PART result.part[p] = floats_all(value);
    return result;
}

#define LANES_OF_TWO(name) \
    INLINE lanes lanes_##name(lanes a, lanes b) { \
        EACH_PART a.part[p] = floats_##name(a.part[p], b.part[p]); \
        return a; \
    }
LANES_OF_TWO(add)
LANES_OF_TWO(sub)
LANES_OF_TWO(mul)
LANES_OF_TWO(div)
LANES_OF_TWO(max)

/* a·b + c, rounded once */
INLINE lanes lanes_fma(lanes a, lanes b, lanes c) {
    EACH_PART c.part[p] = floats_fma(a.part[p], b.part[p], c.part[p]);
    return c;
}

INLINE lanes lanes_abs(lanes a) {
    EACH_PART a.part[p] = floats_without_sign(a.part[p]);
    return a;
}

INLINE float lanes_sum(lanes a) {
    __m256 eight = _mm256_add_ps(floats_lower(a.part), floats_upper(a.part));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

INLINE float lanes_greatest(lanes a) {
    __m256 eight = _mm256_max_ps(floats_lower(a.part), floats_upper(a.part));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

INLINE floats exp_of(floats x) {
    const floats least = floats_all(-87.0f);
    floats within = floats_min(floats_max(x, least), floats_all(88.0f));
    floats power = floats_rounded(floats_mul(within, floats_all(1.44269504f)));
    /* ln 2 in two parts, so that the rest is exact to the last bits */
    floats rest = floats_fma(power, floats_all(-0.693359375f), within);
    rest = floats_fma(power, floats_all(2.12194440e-4f), rest);
    floats sum = floats_all(1.0f / 5040);
    sum = floats_fma(sum, rest, floats_all(1.0f / 720));
    sum = floats_fma(sum, rest, floats_all(1.0f / 120));
    sum = floats_fma(sum, rest, floats_all(1.0f / 24));
    sum = floats_fma(sum, rest, floats_all(1.0f / 6));
    sum = floats_fma(sum, rest, floats_all(0.5f));
    sum = floats_fma(sum, rest, floats_all(1.0f));
    sum = floats_fma(sum, rest, floats_all(1.0f));
    ints raised_by = ints_up(ints_of_floats(power), 23);
    return floats_from(least, x, floats_as(ints_add(ints_as(sum), raised_by)));
}

/* e to the power a; 0 below -87, so that a masked score of minus infinity weighs exactly nothing */
INLINE lanes lanes_exp(lanes a) {
    EACH_PART a.part[p] = exp_of(a.part[p]);
    return a;
}

/* Each to the nearest integer, ties to even, which must lie within int8. */
INLINE void lanes_store_int8(int8_t *to, lanes a) {
    EACH_PART bytes_store_of_ints(to + p * PART, ints_of_floats(a.part[p]));
}

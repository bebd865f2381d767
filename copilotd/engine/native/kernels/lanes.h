/* Sixteen floats at a time, as two AVX2 registers. Every operation is exactly rounded, lane by lane, so what a
 * lane holds depends on no other lane; sums over lanes pair them in one fixed order. */
#pragma once

#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16 };

typedef struct {
    __m256 low, high;
} lanes;

static inline lanes lanes_load(const float *from) {
    return (lanes){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

static inline void lanes_store(float *to, lanes a) {
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
}

static inline lanes lanes_load_half(const uint16_t *from) {
    return (lanes){
        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)),
        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 8))),
    };
}

/* To the nearest half; what is beyond its range becomes the greatest of it, never infinite. NaN stays
 * NaN: the second operand is what these take then. */
static inline void lanes_store_half(uint16_t *to, lanes a) {
    const __m256 most = _mm256_set1_ps(65504.0f), least = _mm256_set1_ps(-65504.0f);
    __m256 low = _mm256_min_ps(most, _mm256_max_ps(least, a.low));
    __m256 high = _mm256_min_ps(most, _mm256_max_ps(least, a.high));
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(to + 8), _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT));
}

static inline lanes lanes_all(float value) {
    return (lanes){_mm256_set1_ps(value), _mm256_set1_ps(value)};
}

static inline lanes lanes_add(lanes a, lanes b) {
    return (lanes){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

static inline lanes lanes_sub(lanes a, lanes b) {
    return (lanes){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

static inline lanes lanes_mul(lanes a, lanes b) {
    return (lanes){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

static inline lanes lanes_div(lanes a, lanes b) {
    return (lanes){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

static inline lanes lanes_max(lanes a, lanes b) {
    return (lanes){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

/* a·b + c, rounded once */
static inline lanes lanes_fma(lanes a, lanes b, lanes c) {
    return (lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

static inline lanes lanes_abs(lanes a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (lanes){_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}

static inline float lanes_sum(lanes a) {
    __m256 eight = _mm256_add_ps(a.low, a.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static inline float lanes_greatest(lanes a) {
    __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static inline __m256 exp_of_eight(__m256 x) {
    const __m256 least = _mm256_set1_ps(-87.0f);
    __m256 there = _mm256_cmp_ps(x, least, _CMP_GE_OQ);
    x = _mm256_min_ps(_mm256_max_ps(x, least), _mm256_set1_ps(88.0f));
    __m256 power = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln 2 in two parts, so that the rest is exact to the last bits */
    __m256 rest = _mm256_fnmadd_ps(power, _mm256_set1_ps(0.693359375f), x);
    rest = _mm256_fnmadd_ps(power, _mm256_set1_ps(-2.12194440e-4f), rest);
    __m256 sum = _mm256_set1_ps(1.0f / 5040);
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f / 720));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f / 120));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f / 24));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f / 6));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(0.5f));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f));
    __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(power), 23);
    __m256 result = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), shifted));
    return _mm256_and_ps(result, there);
}

/* e to the power a; 0 below -87, so that a masked score of minus infinity weighs exactly nothing */
static inline lanes lanes_exp(lanes a) {
    return (lanes){exp_of_eight(a.low), exp_of_eight(a.high)};
}

/* Each to the nearest integer, ties to even, which must lie within int8. */
static inline void lanes_store_int8(int8_t *to, lanes a) {
    __m256i pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high));
    pairs = _mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0));
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    _mm_storeu_si128((__m128i *)to, bytes);
}

/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * How long waits were: the sums of a stack that waits, by the length of the wait.
 *
 * Lengths are in buckets, eight for each power of two, numbered as in
 * ebpfprof/profile/wait_histogram.py; those below 8 ns have 1 ns each. A row has some neighbouring
 * buckets, so a stack whose waits are alike has few rows. It also has the delay of these waits. So
 * a wait adds to one row, as it would to that of its stack in totals, and the histogram costs no
 * more than to find the bucket. If there is no room for another row, totals has the wait.
 */
#ifndef EBPFPROF_LENGTHS_H
#define EBPFPROF_LENGTHS_H

#include "common/loss.h"
#include "probes/totals.h"

#define LENGTHS_IN_ROW 15 /* the kernel allocates 192 bytes for a row of 128 bytes, and its key */
/* The lowest bits of a row's key have its number; the others are those of the key in totals. */
#define LENGTH_ROW_BITS 6

struct lengths {
    u64 delay_ns;
    u64 counts[LENGTHS_IN_ROW]; /* in the unit of struct total */
};

BPF_HASH(lengths, u64, struct lengths, MAX_LENGTHS);
/* An empty row: the BPF stack has no room for one. Only read. */
BPF_ARRAY(no_lengths, struct lengths, 1);

/* The place of a length in the map. */
struct length {
    u64 key;
    u64 index; /* of its count in the row */
};

/*
 * The bucket of a length. Without branches, since the verifier would go on from each power of two:
 * all bits below the highest one are set, and then counted.
 */
static __always_inline u64 length_bucket(u64 ns) {
    u64 bits = ns;
    bits |= bits >> 1;
    bits |= bits >> 2;
    bits |= bits >> 4;
    bits |= bits >> 8;
    bits |= bits >> 16;
    bits |= bits >> 32;
    bits -= bits >> 1 & 0x5555555555555555ULL;
    bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
    bits = ((bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL >> 56;
    s64 shift = (s64)bits - 4;
    shift &= ~(shift >> 63); /* 0 at least */
    return shift * 8 + (ns >> (shift & 63));
}

static __always_inline struct length length_of(u64 stack, u64 ns) {
    u64 bucket = length_bucket(ns);
    u64 row = bucket * 0x1112 >> 16; /* bucket / LENGTHS_IN_ROW; a division takes longer */
    struct length length = {
        .key = (stack & ~((1ULL << LENGTH_ROW_BITS) - 1)) | row,
        .index = bucket - row * LENGTHS_IN_ROW,
    };
    return length;
}

/* Adds to the sums of a stack what waits of this length make up. */
static __always_inline void add_of_length(u64 stack, u64 ns, const struct total *more,
                                          u32 target_index) {
    struct length at = length_of(stack, ns);
    struct lengths *row = lengths.lookup(&at.key);
    if (!row) {
        int first = 0;
        struct lengths *none = no_lengths.lookup(&first);
        if (none)
            lengths.insert(&at.key, none);
        row = lengths.lookup(&at.key);
    }
    u64 index = at.index;
    OWN_REGISTER(index);
    if (row && index < LENGTHS_IN_ROW) {
        __sync_fetch_and_add(&row->counts[index], more->count);
        __sync_fetch_and_add(&row->delay_ns, more->delay_ns);
    } else {
        count_loss(LOSS_lengths_full, target_index);
        add_to(stack, more, target_index);
    }
}

/* Takes back the count of waits that were added with this length. */
static __always_inline void take_count(u64 stack, u64 ns, u64 count, u32 target_index) {
    struct length at = length_of(stack, ns);
    struct lengths *row = lengths.lookup(&at.key);
    u64 index = at.index;
    OWN_REGISTER(index);
    if (row && index < LENGTHS_IN_ROW) {
        __sync_fetch_and_add(&row->counts[index], -count);
    } else {
        struct total less = {.count = -count};
        add_to(stack, &less, target_index);
    }
}

#endif

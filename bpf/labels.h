/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The labels that runtime/pprof gave a goroutine, in runtime.g.labels (runtime/pprof/label.go).
 *
 * Up to Go 1.23 that is a pointer to a map[string]string, which is a pointer to a runtime.hmap;
 * from Go 1.24 on a pointer to a slice of pairs of strings. Either is never changed once a
 * goroutine has it. Programs set labels anew for each request, and the memory of old ones is used
 * again, so a set is known by what is in it: by the sum of the hashes of its labels, since a map
 * has no order. What a hash stands for is stored when it is seen first.
 *
 * Who includes this has read_user (stack.h) and defines MAX_LABEL_SETS. Works in an interrupt, too.
 */
#ifndef EBPFPROF_LABELS_H
#define EBPFPROF_LABELS_H

#include "loss.h"

#define MAX_LABELS 8 /* that are stored of a set; all take part in the hash */
#define LABEL_KEY_BYTES 63
#define LABEL_KEY_ROOM 64
#define LABEL_VALUE_BYTES 126
#define LABEL_VALUE_ROOM 128
#define LABEL_CHUNK 63 /* bytes that are hashed at a time: a key, or half a value */
#define LABEL_CHUNK_ROOM 64
#define MAX_LABEL_SLOTS 32   /* of a map, empty ones included, or of a slice, that are looked at */
#define MAX_LABEL_COUNT 4096 /* more are none: g.labels holds something else */
/* runtime.bmap: tophash [8]uint8, keys [8]string, values [8]string, overflow *bmap. */
#define BUCKET_SLOTS 8
#define BUCKET_BYTES 272
#define BUCKET_OVERFLOW 264
#define MIN_TOP_HASH 5 /* smaller: an empty slot */

struct label {
    u32 key_bytes; /* as long as the target has it; what did not fit was cut */
    u32 value_bytes;
    u8 key[LABEL_KEY_ROOM];
    u8 value[LABEL_VALUE_ROOM];
};

struct label_set {
    u32 count; /* as many as the goroutine has; 0 while it is being written */
    u32 stored;
    struct label labels[MAX_LABELS];
};

BPF_HASH(label_sets, u64, struct label_set, MAX_LABEL_SETS);
BPF_ARRAY(empty_label_set, struct label_set, 1);

/* A string of Go. */
struct label_text {
    u64 address;
    u64 bytes;
};

/* runtime.hmap, Go 1.19 to 1.23. */
struct label_map {
    u64 count;
    u8 flags;
    u8 log2_buckets;
    u16 overflows;
    u32 seed;
    u64 buckets;
};

struct label_slice {
    u64 address;
    u64 count;
};

/* Where the labels are. */
struct label_walk {
    u64 count;
    u64 next_bucket; /* address; 0: none */
    u64 buckets_end;
    u64 overflow; /* of the bucket before: address; 0: none */
    u64 bucket;   /* of a slice: its first label */
    u64 tops;     /* 8 tophashes */
    u64 hash;
    u64 is_cut; /* not 0: a key or a value did not fit */
    bool is_unreadable;
};

static __always_inline u64 mix_label(u64 hash, u64 word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 32;
}

/* Goes on to the next bucket of a map; false if there is none, or it can't be read. */
static __always_inline bool next_label_bucket(struct label_walk *walk) {
    walk->bucket = walk->overflow;
    if (!walk->bucket) {
        if (walk->next_bucket >= walk->buckets_end)
            return false;
        walk->bucket = walk->next_bucket;
        walk->next_bucket += BUCKET_BYTES;
    }
    if (read_user(&walk->tops, sizeof(walk->tops), (void *)walk->bucket) ||
        read_user(&walk->overflow, sizeof(walk->overflow),
                  (void *)(walk->bucket + BUCKET_OVERFLOW))) {
        walk->is_unreadable = true;
        return false;
    }
    return true;
}

/*
 * How much of so many bytes is kept: all, or what fits, which is less than room, a power of 2.
 * Reckoned, since the verifier would try each combination of what is compared.
 */
static __always_inline u64 kept_bytes(u64 bytes, u64 fits, u64 room) {
    u64 left = fits - bytes;
    u64 is_over = (s64)left >> 63;
    asm volatile("" : "+r"(is_over)); /* or it might become a comparison after all */
    return (bytes + (left & is_over)) & (room - 1);
}

/* Hashes the first bytes at an address, LABEL_CHUNK at most; false if they can't be read. */
static __always_inline bool hash_chunk(u64 *hash, u64 address, u64 bytes) {
    u64 words[LABEL_CHUNK_ROOM / 8] = {};
    u64 kept = kept_bytes(bytes, LABEL_CHUNK, LABEL_CHUNK_ROOM);
    if (read_user(words, kept, (void *)address))
        return false;
#pragma unroll
    for (int i = 0; i < LABEL_CHUNK_ROOM / 8; i++)
        *hash = mix_label(*hash, words[i]);
    *hash = mix_label(*hash, bytes);
    return true;
}

/* Adds a label to the hash and, where set is not NULL, to the set; false if it can't be read. */
static __always_inline bool take_label(struct label_walk *walk, u64 key_address, u64 value_address,
                                       struct label_set *set) {
    struct label_text key, value;
    u64 hash = 0;
    if (read_user(&key, sizeof(key), (void *)key_address) ||
        read_user(&value, sizeof(value), (void *)value_address) ||
        !hash_chunk(&hash, key.address, key.bytes) ||
        !hash_chunk(&hash, value.address, value.bytes))
        return false;
    if (value.bytes > LABEL_CHUNK &&
        !hash_chunk(&hash, value.address + LABEL_CHUNK, value.bytes - LABEL_CHUNK))
        return false;
    walk->hash += hash;
    walk->is_cut |= (LABEL_KEY_BYTES - key.bytes | LABEL_VALUE_BYTES - value.bytes) >> 63;
    if (!set)
        return true;
    u32 stored = set->stored;
    if (stored >= MAX_LABELS)
        return true;
    struct label *label = &set->labels[stored];
    label->key_bytes = key.bytes;
    label->value_bytes = value.bytes;
    set->stored = stored + 1;
    return !read_user(label->key, kept_bytes(key.bytes, LABEL_KEY_BYTES, LABEL_KEY_ROOM),
                      (void *)key.address) &&
           !read_user(label->value, kept_bytes(value.bytes, LABEL_VALUE_BYTES, LABEL_VALUE_ROOM),
                      (void *)value.address);
}

/* Hashes the labels, all that are within reach, and stores them where set is not NULL. */
static __always_inline void walk_labels(struct label_walk *walk, bool is_slice,
                                        struct label_set *set) {
    for (u32 i = 0; i < MAX_LABEL_SLOTS; i++) {
        u64 key_address, value_address;
        if (is_slice) {
            if (i >= walk->count)
                break;
            key_address = walk->bucket + i * 2 * sizeof(struct label_text);
            value_address = key_address + sizeof(struct label_text);
        } else {
            u32 slot = i % BUCKET_SLOTS;
            if (slot == 0 && !next_label_bucket(walk))
                break;
            if ((walk->tops >> 8 * slot & 0xff) < MIN_TOP_HASH)
                continue;
            key_address = walk->bucket + 8 + slot * sizeof(struct label_text);
            value_address = key_address + BUCKET_SLOTS * sizeof(struct label_text);
        }
        if (!take_label(walk, key_address, value_address, set)) {
            walk->is_unreadable = true;
            break;
        }
    }
    walk->hash = mix_label(walk->hash, walk->count);
}

/* Where the labels begin; false if they can't be read. There may be none: a count of 0. */
static __always_inline bool find_labels(u64 labels, bool is_slice, struct label_walk *walk) {
    if (is_slice) {
        struct label_slice slice;
        if (read_user(&slice, sizeof(slice), (void *)labels))
            return false;
        walk->bucket = slice.address;
        walk->count = slice.count;
    } else {
        u64 address;
        struct label_map map = {};
        if (read_user(&address, sizeof(address), (void *)labels) ||
            (address && read_user(&map, sizeof(map), (void *)address)))
            return false;
        walk->next_bucket = map.buckets;
        walk->buckets_end = map.buckets + ((u64)BUCKET_BYTES << (map.log2_buckets & 15));
        walk->count = map.count;
    }
    return walk->count <= MAX_LABEL_COUNT;
}

/* Stores a set that was not seen before; false if it can't be. */
static __always_inline bool store_labels(u64 hash, u64 labels, bool is_slice) {
    int zero = 0;
    struct label_set *empty = empty_label_set.lookup(&zero);
    if (!empty)
        return false;
    if (label_sets.insert(&hash, empty)) {
        if (label_sets.lookup(&hash))
            return true; /* somebody else was quicker and stores it */
        count_loss(LOSS_label_sets_full);
        return false;
    }
    struct label_set *set = label_sets.lookup(&hash);
    struct label_walk walk = {};
    if (!set)
        return false;
    if (find_labels(labels, is_slice, &walk))
        walk_labels(&walk, is_slice, set);
    if (walk.hash != hash) { /* it is no set of labels: it changed */
        label_sets.delete(&hash);
        count_loss(LOSS_labels_unreadable);
        return false;
    }
    set->count = walk.count;
    return true;
}

/*
 * The labels of the goroutine g: a key of label_sets, or 0 if it has none, or they are lost.
 * labels_offset is that of runtime.g.labels; is_slice tells that Go is 1.24 or newer.
 */
static __always_inline u64 label_set(u64 g, u32 labels_offset, bool is_slice) {
    u64 labels = 0;
    if (!g || (read_user(&labels, sizeof(labels), (void *)(g + labels_offset)) == 0 && !labels))
        return 0;
    struct label_walk walk = {};
    if (!labels || !find_labels(labels, is_slice, &walk)) {
        count_loss(LOSS_labels_unreadable);
        return 0;
    }
    if (!walk.count)
        return 0;
    walk_labels(&walk, is_slice, NULL);
    if (walk.is_unreadable) {
        count_loss(LOSS_labels_unreadable);
        return 0;
    }
    if (walk.is_cut)
        count_loss(LOSS_label_cut);
    if (walk.count > MAX_LABELS)
        count_loss(LOSS_labels_many);
    if (!label_sets.lookup(&walk.hash) && !store_labels(walk.hash, labels, is_slice))
        return 0;
    return walk.hash;
}

#endif

/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The labels that runtime/pprof gave a goroutine, in runtime.g.labels (runtime/pprof/label.go).
 *
 * Up to Go 1.23 that is a pointer to a map[string]string, which is a pointer to a runtime.hmap;
 * from Go 1.24 on a pointer to a slice of pairs of strings. Either is never changed once a
 * goroutine has it. Programs set labels anew for each request, and the memory of old ones is used
 * again, so a set is known by what is in it: by the sum of the hashes of its labels, since a map
 * has no order. What a hash stands for is stored when it is seen first, for each owner apart: user
 * space deletes the sets of an owner once nobody refers to them any more.
 *
 * Who includes this defines MAX_LABEL_SETS; WITH_CHOSEN_LABELS, whether only labels with certain
 * keys are wanted, and MAX_CHOSEN_LABELS, how many. Works in an interrupt, too.
 */
#ifndef EBPFPROF_LABELS_H
#define EBPFPROF_LABELS_H

#include "common/keys.h"
#include "common/loss.h"
#include "common/memory.h"

#define MAX_LABELS 8      /* that are stored of a set; all within reach take part in the hash */
#define LABEL_KEY_ROOM 64 /* bytes */
#define LABEL_VALUE_ROOM 128
#define LABEL_CHUNK_WORDS 4 /* that are hashed at a time */
#define LABEL_READERS 4
#define MAX_LABEL_STEPS 20   /* one for each label, and for each bucket of a map */
#define MAX_LABEL_COUNT 4096 /* more are none: g.labels holds something else */
#define MAX_ABSENT_LABELS 64
/* runtime.bmap: tophash [8]uint8, keys [8]string, values [8]string, overflow *bmap. */
#define BUCKET_SLOTS 8
#define BUCKET_BYTES 272
#define BUCKET_KEYS 8
#define BUCKET_OVERFLOW 264
#define MIN_TOP_HASH 5 /* smaller: an empty slot */
#define EACH_TOP(byte) ((byte)*0x0101010101010101ULL)

struct label {
    u32 key_bytes; /* as long as the target has it; what did not fit was cut */
    u32 value_bytes;
    u64 key[LABEL_KEY_ROOM / 8];
    u64 value[LABEL_VALUE_ROOM / 8];
};

struct label_set {
    u64 owner; /* label_owner() */
    u32 count; /* as many as the goroutine has, of those that are wanted */
    u32 stored;
    struct label labels[MAX_LABELS];
};

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

/*
 * What is known of a set while it is read. That does not lie on the stack, where there is not
 * enough room, and of which the verifier would try each combination of what it can hold.
 */
struct label_reader {
    u64 is_taken;
    u64 bucket; /* address; of a slice: of its first label */
    u64 next_bucket;
    u64 buckets_end;
    u64 overflow; /* that of the bucket; 0: none */
    u64 occupied; /* the highest bit of the byte of each of its slots that is still to be read */
    u64 in_slice; /* how many labels it has */
    u64 hash;     /* the sum of those of the labels so far */
    u64 is_cut;   /* not 0: a key or a value did not fit */
    u64 absent;   /* the address of what could not be read; 0: all could */
    u32 absent_bytes;
    union {
        struct label_map map;
        struct label_slice slice;
        struct {
            struct label_text key;
            struct label_text value;
        };
    };
    struct label_set set;
    struct label beyond; /* for one that has no room in the set: it is read for its hash */
};

struct sets_made {
    u64 rows; /* how many were ever made */
};

BPF_HASH(label_sets, u64, struct label_set, MAX_LABEL_SETS);
BPF_PERCPU_ARRAY(sets_made, struct sets_made, 1);
/*
 * Parts of labels that could not be read: by address, with the number of the target above, how many
 * bytes. As a rule they are not in memory: a program may never have looked at a string that it
 * passes on. A BPF program can't wait for them. Who reads them from outside brings them.
 */
BPF_HASH(absent_labels, u64, u32, MAX_ABSENT_LABELS);
#if WITH_CHOSEN_LABELS
/* Hashes of the keys that are wanted. Labels with others are as if they were not there. */
BPF_HASH(chosen_labels, u64, u64, MAX_CHOSEN_LABELS);
#endif
/* Of a processor; several, as a program that reads labels may give way to another one. */
BPF_PERCPU_ARRAY(label_readers, struct label_reader, LABEL_READERS);

/* Whose a set is: of a target and, where rows come in turns, of such a turn, 0 or 1. */
static __always_inline u64 label_owner(u32 target_index, u64 turn) {
    return (u64)target_index << 1 | turn;
}

static __always_inline struct label_reader *take_label_reader(void) {
    for (int i = 0; i < LABEL_READERS; i++) {
        int index = i;
        struct label_reader *reader = label_readers.lookup(&index);
        if (reader && __sync_val_compare_and_swap(&reader->is_taken, 0, 1) == 0)
            return reader;
    }
    return NULL;
}

/* Whether memory of the target that has labels can't be read. */
static __always_inline bool is_absent(struct label_reader *reader, void *to, u32 bytes,
                                      u64 address) {
    if (!read_user(to, bytes, (void *)address))
        return false;
    reader->absent = address;
    reader->absent_bytes = bytes;
    return true;
}

static __always_inline void tell_absent(struct label_reader *reader, u64 owner) {
    u64 key = reader->absent | owner >> 1 << TARGET_SHIFT;
    if (reader->absent && !(reader->absent >> TARGET_SHIFT))
        absent_labels.update(&key, &reader->absent_bytes);
}

/* Goes on to the next bucket of a map. Returns 1 if there is none, -1 if it can't be read. */
static __always_inline int next_label_bucket(struct label_reader *reader) {
    u64 bucket = reader->overflow;
    if (!bucket) {
        bucket = reader->next_bucket;
        if (bucket >= reader->buckets_end)
            return 1;
        reader->next_bucket = bucket + BUCKET_BYTES;
    }
    reader->bucket = bucket;
    u64 tops;
    if (is_absent(reader, &tops, sizeof(tops), bucket) ||
        is_absent(reader, &reader->overflow, sizeof(u64), bucket + BUCKET_OVERFLOW))
        return -1;
    reader->occupied =
        (((tops & ~EACH_TOP(0x80)) + EACH_TOP(0x80 - MIN_TOP_HASH)) | tops) & EACH_TOP(0x80);
    return 0;
}

/* Reads and hashes a string, as much of it as fits; false if it can't be read. */
static __always_inline bool read_label_text(struct label_reader *reader,
                                            const struct label_text *text, u64 *words, u64 room,
                                            u64 *hash) {
    u64 bytes = text->bytes, kept = bytes;
    if (kept > room) {
        kept = room;
        reader->is_cut = true;
    }
    *hash = mix(*hash, bytes);
    /* What is not hashed is not shown either and may be left from another one. */
    for (int i = 0; i < room / 8 && i * 8 < kept; i += LABEL_CHUNK_WORDS)
        __builtin_memset(&words[i], 0, LABEL_CHUNK_WORDS * 8);
    u64 read_bytes = kept;
    OWN_REGISTER(read_bytes);
    if (read_bytes > room || is_absent(reader, words, read_bytes, text->address))
        return false;
    for (int i = 0; i < room / 8 && i * 8 < kept; i += LABEL_CHUNK_WORDS)
        for (int j = i; j < i + LABEL_CHUNK_WORDS; j++)
            *hash = mix(*hash, words[j]);
    return true;
}

/* Adds a label to the hash and, if there is room, to the set; false if it can't be read. */
static __always_inline bool take_label(struct label_reader *reader) {
    u64 stored = reader->set.stored, index = stored, hash = 0;
    OWN_REGISTER(index);
    if (index > MAX_LABELS)
        return false;
    /* The one behind the last one of the set is label_reader.beyond. */
    struct label *label = (void *)reader->set.labels + index * sizeof(struct label);
    label->key_bytes = reader->key.bytes;
    label->value_bytes = reader->value.bytes;
#if WITH_CHOSEN_LABELS
    u64 is_cut = reader->is_cut;
#endif
    if (!read_label_text(reader, &reader->key, label->key, sizeof(label->key), &hash))
        return false;
#if WITH_CHOSEN_LABELS
    if (!chosen_labels.lookup(&hash)) {
        reader->set.count--;
        reader->is_cut = is_cut;
        return true;
    }
#endif
    if (!read_label_text(reader, &reader->value, label->value, sizeof(label->value), &hash))
        return false;
    reader->hash += hash;
    if (stored < MAX_LABELS)
        reader->set.stored = stored + 1;
    return true;
}

/* Reads all labels that are within reach; false if one can't be read. */
static __always_inline bool take_labels(struct label_reader *reader, bool is_slice) {
    for (u32 i = 0; i < MAX_LABEL_STEPS; i++) {
        if (is_slice) {
            u32 bytes = sizeof(reader->key) + sizeof(reader->value);
            if (i >= reader->in_slice)
                break;
            if (is_absent(reader, &reader->key, bytes, reader->bucket + i * bytes))
                return false;
        } else {
            u64 occupied = reader->occupied;
            if (!occupied) {
                int end = next_label_bucket(reader);
                if (end)
                    return end > 0;
                continue;
            }
            reader->occupied = occupied & (occupied - 1);
            /* The number of the byte with the lowest bit that is set: as many bytes is the
               factor shifted, which leaves that number on top. */
            u64 slot = ((occupied & -occupied) >> 7) * 0x0001020304050607ULL >> 56;
            u64 key = reader->bucket + BUCKET_KEYS + slot * sizeof(reader->key);
            u64 value = key + BUCKET_SLOTS * sizeof(reader->key);
            if (is_absent(reader, &reader->key, sizeof(reader->key), key) ||
                is_absent(reader, &reader->value, sizeof(reader->value), value))
                return false;
        }
        if (!take_label(reader))
            return false;
    }
    return true;
}

/* Where the labels begin; false if they can't be read. There may be none: a count of 0. */
static __always_inline bool find_labels(struct label_reader *reader, u64 labels, bool is_slice) {
    u64 count, map;
    reader->hash = reader->is_cut = reader->overflow = reader->absent = 0;
    reader->occupied = reader->set.stored = 0;
    if (is_slice) {
        if (is_absent(reader, &reader->slice, sizeof(reader->slice), labels))
            return false;
        reader->bucket = reader->slice.address;
        count = reader->in_slice = reader->slice.count;
    } else {
        if (is_absent(reader, &map, sizeof(map), labels))
            return false;
        if (!map) {
            reader->set.count = 0;
            return true;
        }
        if (is_absent(reader, &reader->map, sizeof(reader->map), map))
            return false;
        reader->next_bucket = reader->map.buckets;
        reader->buckets_end =
            reader->map.buckets + ((u64)BUCKET_BYTES << (reader->map.log2_buckets & 15));
        count = reader->map.count;
    }
    reader->set.count = count;
    return count <= MAX_LABEL_COUNT;
}

/* The key of the set in label_sets, where it is stored if it is new; 0 if it is empty or lost. */
static __always_inline u64 read_labels(struct label_reader *reader, u64 labels, bool is_slice,
                                       u64 owner) {
    int zero = 0;
    bool is_read = find_labels(reader, labels, is_slice);
    if (is_read && !reader->set.count)
        return 0;
    if (!is_read || !take_labels(reader, is_slice)) {
        tell_absent(reader, owner);
        count_loss(LOSS_labels_unreadable);
        return 0;
    }
#if WITH_CHOSEN_LABELS
    if (!reader->set.count)
        return 0;
#endif
    u64 hash = mix(mix(reader->hash, reader->set.count), owner);
    if (reader->is_cut)
        count_loss(LOSS_label_cut);
    if (reader->set.count > MAX_LABELS)
        count_loss(LOSS_labels_many);
    if (label_sets.lookup(&hash))
        return hash;
    reader->set.owner = owner;
    s64 failure = label_sets.insert(&hash, &reader->set);
    struct sets_made *made = sets_made.lookup(&zero);
    if (made)
        made->rows += 1 + (failure >> 63); /* a branch would double the verifier's work */
    if (label_sets.lookup(&hash))
        return hash;
    count_loss(LOSS_label_sets_full);
    return 0;
}

/*
 * What a runtime.g.labels stands for: a key of label_sets, or 0 if there are none, or they are
 * lost. is_slice tells that Go is 1.24 or newer; owner is from label_owner().
 */
static __always_inline u64 label_set(u64 labels, bool is_slice, u64 owner) {
    if (!labels)
        return 0;
    struct label_reader *reader = take_label_reader();
    if (!reader) {
        count_loss(LOSS_labels_unreadable);
        return 0;
    }
    u64 hash = read_labels(reader, labels, is_slice, owner);
    reader->is_taken = 0;
    return hash;
}

/* The same of the goroutine g, whose labels are at that offset. */
static __always_inline u64 label_set_of(u64 g, u32 labels_offset, bool is_slice, u64 owner) {
    u64 labels = 0;
    if (!g)
        return 0;
    if (read_user(&labels, sizeof(labels), (void *)(g + labels_offset))) {
        count_loss(LOSS_labels_unreadable);
        return 0;
    }
    return label_set(labels, is_slice, owner);
}

#endif

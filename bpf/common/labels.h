/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The labels that runtime/pprof gave a goroutine, in runtime.g.labels (runtime/pprof/label.go).
 *
 * Up to Go 1.23 that is a pointer to a map[string]string, which is a pointer to a runtime.hmap;
 * from Go 1.24 on a pointer to a slice of pairs of strings. Go changes neither once a goroutine
 * has it. Programs set new labels for each request, and Go reuses the memory of old ones, so the
 * content identifies a set: the sum of the hashes of its labels, since a map has no order. The
 * first event with a hash stores its labels, for each owner: user space deletes an owner's sets
 * once no stack or sample refers to them.
 *
 * Users of this file define MAX_LABEL_SETS; WITH_CHOSEN_LABELS, whether to record only labels with
 * certain keys, and MAX_CHOSEN_LABELS, how many keys. Works in an interrupt, too.
 */
#ifndef EBPFPROF_LABELS_H
#define EBPFPROF_LABELS_H

#include "common/keys.h"
#include "common/loops.h"
#include "common/loss.h"
#include "common/memory.h"

#define MAX_LABELS 8      /* stored of a set; the hash covers all that are read */
#define LABEL_KEY_ROOM 64 /* bytes */
#define LABEL_VALUE_ROOM 128
#define LABEL_CHUNK_WORDS 4 /* hashed at a time */
#define LABEL_SEED 1        /* of a label's hash: that of one without any text is not 0 */
#define LABEL_READERS 4
#define MAX_LABEL_STEPS 20   /* one for each label, and for each bucket of a map */
#define MAX_LABEL_COUNT 4096 /* with more, g.labels holds other data */
#define MAX_ABSENT_LABELS 64
/* runtime.bmap: tophash [8]uint8, keys [8]string, values [8]string, overflow *bmap. */
#define BUCKET_SLOTS 8
#define BUCKET_BYTES 272
#define BUCKET_KEYS 8
#define BUCKET_OVERFLOW 264
#define MIN_TOP_HASH 5 /* smaller: an empty slot */
#define EACH_TOP(byte) ((byte)*0x0101010101010101ULL)

struct label {
    u32 key_bytes; /* in the target; `key` may be cut */
    u32 value_bytes;
    u64 key[LABEL_KEY_ROOM / 8];
    u64 value[LABEL_VALUE_ROOM / 8];
};

struct label_set {
    u64 owner; /* label_owner() */
    u32 count; /* the goroutine's, of those that are selected */
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
 * The state of reading a set. It is in a map: the stack is too small, and the verifier would try
 * each combination of values there.
 */
struct label_reader {
    u64 is_taken;
    u64 bucket; /* its address; of a slice: of its first label */
    u64 next_bucket;
    u64 buckets_end;
    u64 overflow; /* the bucket's overflow bucket; 0: none */
    u64 occupied; /* its slots still to be read: the highest bit of each one's byte */
    u64 in_slice; /* the number of its labels */
    u64 hash;     /* the sum of the hashes of the labels so far */
    u64 is_cut;   /* not 0: a key or a value did not fit */
    u64 absent;   /* the address of unreadable memory; 0: none */
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
    struct label beyond; /* a label that does not fit into the set: read for its hash */
};

struct sets_made {
    u64 rows; /* ever made */
};

BPF_HASH(label_sets, u64, struct label_set, MAX_LABEL_SETS);
BPF_PERCPU_ARRAY(sets_made, struct sets_made, 1);
/*
 * Parts of labels that a BPF program could not read: by address, with the number of the target
 * above, their size in bytes. As a rule their pages are not in memory: a program may pass on a
 * string without reading it. A BPF program can't wait for a page; user space reads it from outside.
 */
BPF_HASH(absent_labels, u64, u32, MAX_ABSENT_LABELS);
/* Hashes of the selected keys, WITH_CHOSEN_LABELS: labels with other keys are ignored. */
BPF_HASH(chosen_labels, u64, u64, MAX_CHOSEN_LABELS);
/* Several for each CPU: another program may interrupt one that reads labels. */
BPF_PERCPU_ARRAY(label_readers, struct label_reader, LABEL_READERS);

/* The owner of a set: a target and, in the CPU profile, the generation of the rows, 0 or 1. */
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

/* Reads memory of the target; returns true, and notes the address, if that fails. */
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

/* Goes to the next bucket of a map. Returns 1 if there is none, -1 if it can't be read. */
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
    /* Words that are not hashed are not shown either, and may keep the bytes of another label. */
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
    u64 stored = reader->set.stored, index = stored, hash = LABEL_SEED;
    OWN_REGISTER(index);
    if (index > MAX_LABELS)
        return false;
    /* Behind the last label of the set is label_reader.beyond. */
    struct label *label = (void *)reader->set.labels + index * sizeof(struct label);
    label->key_bytes = reader->key.bytes;
    label->value_bytes = reader->value.bytes;
    u64 is_cut = reader->is_cut;
    if (!read_label_text(reader, &reader->key, label->key, sizeof(label->key), &hash))
        return false;
    if (WITH_CHOSEN_LABELS && !chosen_labels.lookup(&hash)) {
        reader->set.count--;
        reader->is_cut = is_cut;
        return true;
    }
    if (!read_label_text(reader, &reader->value, label->value, sizeof(label->value), &hash))
        return false;
    reader->hash += hash;
    if (stored < MAX_LABELS)
        reader->set.stored = stored + 1;
    return true;
}

/* Reads the first labels, in up to MAX_LABEL_STEPS steps; false if one can't be read. */
static __always_inline bool take_labels(struct label_reader *reader, bool is_slice) {
    for (u32 i = FROM_0(*(volatile u32 *)&reader->set.stored); i < MAX_LABEL_STEPS; i++) {
        VERIFIED_ONCE;
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
            /* The number of the byte with the lowest set bit: the product is the factor,
               shifted by as many bytes, and has that number in its highest byte. */
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

/* Finds the first label; false if that can't be read. Without labels, count is 0. */
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

/* Stores the set in label_sets if it is new; returns its key, 0 if it is empty or lost. */
static __always_inline u64 read_labels(struct label_reader *reader, u64 labels, bool is_slice,
                                       u64 owner) {
    int zero = 0;
    bool is_read = find_labels(reader, labels, is_slice);
    if (is_read && !reader->set.count)
        return 0;
    if (!is_read || !take_labels(reader, is_slice)) {
        tell_absent(reader, owner);
        count_loss(LOSS_labels_unreadable, owner >> 1);
        return 0;
    }
    if (WITH_CHOSEN_LABELS && !reader->set.count)
        return 0;
    u64 hash = mix(mix(reader->hash, reader->set.count), owner);
    if (reader->is_cut)
        count_loss(LOSS_label_cut, owner >> 1);
    if (reader->set.count > MAX_LABELS)
        count_loss(LOSS_labels_many, owner >> 1);
    if (label_sets.lookup(&hash))
        return hash;
    reader->set.owner = owner;
    s64 failure = label_sets.insert(&hash, &reader->set);
    struct sets_made *made = sets_made.lookup(&zero);
    if (made)
        made->rows += 1 + (failure >> 63); /* a branch would double the verifier's work */
    if (label_sets.lookup(&hash))
        return hash;
    count_loss(LOSS_label_sets_full, owner >> 1);
    return 0;
}

/*
 * The key in label_sets for the value of a runtime.g.labels; 0 if there are no labels, or they are
 * lost. is_slice: Go 1.24 or newer; owner: from label_owner().
 */
static __always_inline u64 label_set(u64 labels, bool is_slice, u64 owner) {
    if (!labels)
        return 0;
    struct label_reader *reader = take_label_reader();
    if (!reader) {
        count_loss(LOSS_labels_unreadable, owner >> 1);
        return 0;
    }
    u64 hash = read_labels(reader, labels, is_slice, owner);
    reader->is_taken = 0;
    return hash;
}

/* The same for the goroutine g. labels_offset: 0 if the program never sets labels. */
static __always_inline u64 label_set_of(u64 g, u32 labels_offset, bool is_slice, u64 owner) {
    u64 labels = 0;
    if (!g || !labels_offset)
        return 0;
    if (read_user(&labels, sizeof(labels), (void *)(g + labels_offset))) {
        count_loss(LOSS_labels_unreadable, owner >> 1);
        return 0;
    }
    return label_set(labels, is_slice, owner);
}

#endif

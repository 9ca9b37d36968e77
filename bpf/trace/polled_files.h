/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What the file descriptors stand for that goroutines wait for, as the kernel knows it at the first
 * wait: then the file is open for sure. The key is the word of the wait (waited_for.h), which no
 * other file has.
 */
#ifndef EBPFPROF_POLLED_FILES_H
#define EBPFPROF_POLLED_FILES_H

#include "common/memory.h"

#define FILE_TYPE 0xf000 /* include/uapi/linux/stat.h, S_IFMT */
#define FILE_IS_SOCKET 0xc000
#define FILE_IS_PIPE 0x1000
#define FAMILY_UNIX 1 /* include/linux/socket.h */
#define FAMILY_INTERNET 2
#define FAMILY_INTERNET_6 10
#define ADDRESS_BYTES 16

struct polled_file {
    u64 inode;
    u32 fd;
    u16 mode;     /* struct inode.i_mode */
    u16 family;   /* of a socket; what is below is one's of the internet, or 0 */
    u16 protocol; /* include/uapi/linux/in.h */
    u16 state;    /* include/net/tcp_states.h */
    u16 local_port;
    u16 peer_port; /* highest byte first */
    u64 is_write;  /* they wait until it can be written */
    u8 local[ADDRESS_BYTES];
    u8 peer[ADDRESS_BYTES];
};

BPF_TABLE("lru_hash", u64, struct polled_file, files, 1); /* more once it is loaded */
BPF_PERCPU_ARRAY(file_scratch, struct polled_file, 1);

static __always_inline u64 kernel_word(u64 address) {
    u64 word = 0;
    read_kernel(&word, sizeof(word), (void *)address);
    return word;
}

/* The struct file of a descriptor of the current process; 0 if there is none. */
static __always_inline u64 file_of(u64 fd) {
    u64 task = (u64)bpf_get_current_task();
    u64 table = kernel_word(kernel_word(task + TASK_FILES) + FILES_TABLE);
    u32 size = 0;
    read_kernel(&size, sizeof(size), (void *)(table + TABLE_SIZE));
    return fd < size ? kernel_word(kernel_word(table + TABLE_FILES) + 8 * fd) : 0;
}

static __always_inline void read_socket(u64 sock, struct polled_file *to) {
    u8 state = 0;
    read_kernel(&to->family, sizeof(to->family), (void *)(sock + SOCK_FAMILY));
    if (to->family != FAMILY_INTERNET && to->family != FAMILY_INTERNET_6)
        return;
    read_kernel(&state, sizeof(state), (void *)(sock + SOCK_STATE));
    to->state = state;
    read_kernel(&to->protocol, sizeof(to->protocol), (void *)(sock + SOCK_PROTOCOL));
    read_kernel(&to->local_port, sizeof(to->local_port), (void *)(sock + SOCK_LOCAL_PORT));
    read_kernel(&to->peer_port, sizeof(to->peer_port), (void *)(sock + SOCK_PEER_PORT));
    if (to->family == FAMILY_INTERNET) {
        read_kernel(to->local, 4, (void *)(sock + SOCK_LOCAL));
        read_kernel(to->peer, 4, (void *)(sock + SOCK_PEER));
    } else {
        read_kernel(to->local, ADDRESS_BYTES, (void *)(sock + SOCK_LOCAL_6));
        read_kernel(to->peer, ADDRESS_BYTES, (void *)(sock + SOCK_PEER_6));
    }
}

/* Notes the file of a descriptor, unless its key is known. */
static __always_inline void note_file(u64 key, u64 fd, bool is_write) {
    int first = 0;
    if (files.lookup(&key))
        return;
    struct polled_file *to = file_scratch.lookup(&first);
    u64 file = file_of(fd);
    if (!to || !file)
        return;
    u64 inode = kernel_word(file + FILE_INODE);
    __builtin_memset(to, 0, sizeof(*to));
    to->fd = fd;
    to->is_write = is_write;
    to->inode = kernel_word(inode + INODE_NUMBER);
    read_kernel(&to->mode, sizeof(to->mode), (void *)(inode + INODE_MODE));
    if ((to->mode & FILE_TYPE) == FILE_IS_SOCKET)
        read_socket(kernel_word(kernel_word(file + FILE_PRIVATE) + SOCKET_SOCK), to);
    files.update(&key, to);
}

#endif

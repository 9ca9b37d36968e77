/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The helpers that read memory, under names that BCC doesn't know: it would look up known ones in
 * /proc/kallsyms, for its fallback before Linux 5.5, which takes longer than compiling.
 */
#ifndef EBPFPROF_MEMORY_H
#define EBPFPROF_MEMORY_H

static long (*read_user)(void *to, u32 size_bytes,
                         const void *from) = (void *)BPF_FUNC_probe_read_user;
static long (*read_kernel)(void *to, u32 size_bytes,
                           const void *from) = (void *)BPF_FUNC_probe_read_kernel;

/*
 * For an index or a size, right before its comparison with a limit: the code behind that uses the
 * register that was compared. Otherwise the compiler may use an earlier copy on the stack, for
 * which verifiers (up to Linux 6.1 at least) don't know the limit. Use such a variable nowhere
 * else, or the compiler puts it on the stack itself.
 */
#define OWN_REGISTER(variable) asm volatile("" : "+r"(variable))

#endif

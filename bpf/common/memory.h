/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Reading memory, under names that BCC doesn't know: it would look the helpers up in
 * /proc/kallsyms, to fall back on kernels before 5.5, and that takes longer than compiling.
 */
#ifndef EBPFPROF_MEMORY_H
#define EBPFPROF_MEMORY_H

static long (*read_user)(void *to, u32 size_bytes,
                         const void *from) = (void *)BPF_FUNC_probe_read_user;
static long (*read_kernel)(void *to, u32 size_bytes,
                           const void *from) = (void *)BPF_FUNC_probe_read_kernel;

/*
 * For an index or a size, right before it is compared with its limit: what is used right behind
 * that is the very register that was compared. Otherwise the compiler may use a copy that it put on
 * the stack before, of which verifiers (up to Linux 6.1 at least) don't see that it was compared.
 * Such a variable must not be used anywhere else, or it lands on the stack itself.
 */
#define OWN_REGISTER(variable) asm volatile("" : "+r"(variable))

#endif

/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * BCC compiles against the headers of the running kernel unless BCC_KERNEL_SOURCE points
 * elsewhere. Our programs need none of the kernel's own structs except pt_regs, so this
 * folder holds the few declarations that BCC's preamble asks for, and many machines have
 * no headers installed.
 */
#ifndef EBPFPROF_KCONFIG_H
#define EBPFPROF_KCONFIG_H
#define CONFIG_BPF_SYSCALL 1
#endif

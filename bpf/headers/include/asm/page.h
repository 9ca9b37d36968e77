/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* BCC includes this file; our programs need nothing of it. */

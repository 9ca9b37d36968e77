"""Virtual machines in which ebpfprof is tested: kernels of Debian under plain QEMU, or Vagrant."""

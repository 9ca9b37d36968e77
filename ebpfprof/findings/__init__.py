"""What is wrong with a process, by what was observed of it: rules, independent of BPF."""

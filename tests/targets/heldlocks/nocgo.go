//go:build !withcgo

package main

func callC() { registry.size++ }

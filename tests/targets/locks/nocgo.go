//go:build !withcgo

package main

func callC() { notALock++ }

//go:build !withcgo

package main

func inC(value int) int { return value }

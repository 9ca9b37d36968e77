//go:build !withcgo

package main

func sleepInC() { panic("built without C") }

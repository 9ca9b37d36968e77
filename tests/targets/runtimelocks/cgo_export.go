//go:build withcgo

package main

import "C"

//export releaseInGo
func releaseInGo() { releasedFromC() }

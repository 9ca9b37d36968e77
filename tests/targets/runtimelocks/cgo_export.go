//go:build go1.25 && withcgo

package main

import "C"

//export releaseInGo
func releaseInGo() { releasedFromC() }

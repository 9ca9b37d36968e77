//go:build withcgo

package main

import "C"

//export unlockInGo
func unlockInGo() {
	heldByC.Unlock()
}

//go:build withcgo

package main

import "C"

//export blockInGo
func blockInGo() {
	<-empty
}

//go:build !withcgo

package main

func useC() { panic("stuck: built without cgo") }

func startThread() {}

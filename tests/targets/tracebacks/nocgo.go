//go:build !withcgo

package main

var cgoCalls []func()

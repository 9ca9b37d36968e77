//go:build !go1.25 && !goexperiment.synctest

package main

func startBubble() {}

//go:build !goexperiment.runtimesecret

package main

func startSecret() {}

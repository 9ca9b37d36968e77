//go:build !go1.27

package main

var newest []func()

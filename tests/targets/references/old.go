//go:build !go1.24

package main

func fillNew() {}

func cutNew(string) {}

package main

import "bytes"

func split(traceback []byte) [][]byte { return bytes.Split(traceback, []byte("\n\n")) }

func contains(text []byte, part string) bool { return bytes.Contains(text, []byte(part)) }

//go:build !go1.24

package main

import "net/http"

func allowFrames(*http.Server) {}

func askInFrames(string, int) { panic("answers: no HTTP/2 without encryption before Go 1.24") }

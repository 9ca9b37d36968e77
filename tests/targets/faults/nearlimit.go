package main

import (
	"net/http"
	"runtime/debug"
	"sync"

	"ebpfprof.test/harness/traffic"
)

// A tileCache has tiles of a map. Its size was chosen for a larger container than the one of
// 256 MiB that it runs in.
type tileCache struct {
	mu    sync.RWMutex
	tiles [][]byte
}

const tileBytes = 64 << 10

//go:noinline
func drawTile(number int) []byte {
	tile := make([]byte, tileBytes)
	for i := range tile {
		tile[i] = byte(i * number)
	}
	return tile
}

// tile draws a tile again from time to time, in place of the old one.
//
//go:noinline
func (c *tileCache) tile(number int) []byte {
	if number%4 == 0 {
		drawn := drawTile(number)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tiles[number%len(c.tiles)] = drawn
		return drawn
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.tiles[number%len(c.tiles)]
}

func (c *tileCache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Write(c.tile(keyOf(r)))
}

func init() { register("nearlimit", serveTiles) }

func serveTiles() {
	debug.SetGCPercent(4)
	cache := &tileCache{}
	for i := 0; i < 3648; i++ {
		cache.tiles = append(cache.tiles, drawTile(i))
	}
	underLoad(cache, traffic.Load{PerSecond: 100})
}

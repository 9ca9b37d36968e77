package main

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
)

// Works whose leaves are assembly: most have no frame, some use BP for data.
var assemblyWorks = []work{
	{"copyBlocks", copyBlocks},
	{"hashStrings", hashStrings},
	{"findByte", findByte},
	{"sumSHA256", sumSHA256},
	{"sumCRC32", sumCRC32},
	{"sumMD5", sumMD5},
	{"multiply", multiply},
}

var (
	block      = bytes.Repeat([]byte{1}, 1<<16)
	otherBlock = make([]byte, 1<<16)
	longKeys   = keys(16, 1<<10)
	byLongKey  = byKey(longKeys)
	bigFactor  = new(big.Int).Exp(big.NewInt(3), big.NewInt(20000), nil)
	bigOther   = new(big.Int).Exp(big.NewInt(7), big.NewInt(10000), nil)
	sink       int
	bigSink    = new(big.Int)
)

// keys makes strings of so many bytes. Only maps of more than eight strings use hashes.
func keys(count, size int) []string {
	found := make([]string, count)
	for i := range found {
		found[i] = strings.Repeat(string(rune('a'+i)), size)
	}
	return found
}

func byKey(keys []string) map[string]int {
	found := map[string]int{}
	for i, key := range keys {
		found[key] = i
	}
	return found
}

//go:noinline
func copyBlocks() {
	for i := 0; i < 500; i++ {
		copy(otherBlock, block)
	}
}

//go:noinline
func hashStrings() {
	for i := 0; i < 20000; i++ {
		sink += byLongKey[longKeys[i%len(longKeys)]]
	}
}

//go:noinline
func findByte() {
	for i := 0; i < 500; i++ {
		sink += bytes.IndexByte(block, 2)
	}
}

//go:noinline
func sumSHA256() {
	for i := 0; i < 20; i++ {
		sum := sha256.Sum256(block)
		sink += int(sum[0])
	}
}

//go:noinline
func sumCRC32() {
	for i := 0; i < 300; i++ {
		sink += int(crc32.ChecksumIEEE(block))
	}
}

//go:noinline
func sumMD5() {
	for i := 0; i < 20; i++ {
		sum := md5.Sum(block)
		sink += int(sum[0])
	}
}

//go:noinline
func multiply() {
	for i := 0; i < 20; i++ {
		bigSink.Mul(bigFactor, bigOther)
	}
}

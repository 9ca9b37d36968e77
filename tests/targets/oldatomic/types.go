// Package atomic has the types of sync/atomic that Go 1.17 and 1.18 lack. tests/toolchains.py adds
// this file to that package when it builds with these versions; it is no program.
package atomic

// An Int32 is an atomic int32, as in Go 1.19.
type Int32 struct{ v int32 }

func (x *Int32) Load() int32           { return LoadInt32(&x.v) }
func (x *Int32) Store(value int32)     { StoreInt32(&x.v, value) }
func (x *Int32) Add(delta int32) int32 { return AddInt32(&x.v, delta) }
func (x *Int32) Swap(value int32) int32 {
	return SwapInt32(&x.v, value)
}
func (x *Int32) CompareAndSwap(old, value int32) bool {
	return CompareAndSwapInt32(&x.v, old, value)
}

// An Int64 is an atomic int64, as in Go 1.19.
type Int64 struct{ v int64 }

func (x *Int64) Load() int64           { return LoadInt64(&x.v) }
func (x *Int64) Store(value int64)     { StoreInt64(&x.v, value) }
func (x *Int64) Add(delta int64) int64 { return AddInt64(&x.v, delta) }
func (x *Int64) Swap(value int64) int64 {
	return SwapInt64(&x.v, value)
}
func (x *Int64) CompareAndSwap(old, value int64) bool {
	return CompareAndSwapInt64(&x.v, old, value)
}

// A Uint32 is an atomic uint32, as in Go 1.19.
type Uint32 struct{ v uint32 }

func (x *Uint32) Load() uint32            { return LoadUint32(&x.v) }
func (x *Uint32) Store(value uint32)      { StoreUint32(&x.v, value) }
func (x *Uint32) Add(delta uint32) uint32 { return AddUint32(&x.v, delta) }

// A Bool is an atomic bool, as in Go 1.19.
type Bool struct{ v uint32 }

func (x *Bool) Load() bool       { return LoadUint32(&x.v) != 0 }
func (x *Bool) Store(value bool) { StoreUint32(&x.v, word(value)) }
func (x *Bool) Swap(value bool) bool {
	return SwapUint32(&x.v, word(value)) != 0
}
func (x *Bool) CompareAndSwap(old, value bool) bool {
	return CompareAndSwapUint32(&x.v, word(old), word(value))
}

func word(value bool) uint32 {
	if value {
		return 1
	}
	return 0
}

package main

import (
	raster "image"
	"image/color"
	"image/jpeg"
	"net/http"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A thumbnailer makes small pictures of a large one. Its work is on the CPU: with half a CPU, the
// kernel stops it in each period.
type thumbnailer struct{ original *raster.Gray }

//go:noinline
func (t *thumbnailer) scale(width, height int) *raster.Gray {
	small := raster.NewGray(raster.Rect(0, 0, width, height))
	size := t.original.Bounds().Size()
	stepX, stepY := size.X/width, size.Y/height
	for y := 0; y < height; y++ {
		for x := 0; x < width; x++ {
			sum := 0
			for row := y * stepY; row < (y+1)*stepY; row++ {
				for column := x * stepX; column < (x+1)*stepX; column++ {
					sum += int(t.original.Pix[row*t.original.Stride+column])
				}
			}
			small.Pix[y*small.Stride+x] = uint8(sum / (stepX * stepY))
		}
	}
	return small
}

//go:noinline
func (t *thumbnailer) sharpen(picture *raster.Gray) {
	for i := 1; i+1 < len(picture.Pix); i++ {
		value := 2*int(picture.Pix[i]) - (int(picture.Pix[i-1])+int(picture.Pix[i+1]))/2
		if value >= 0 && value < 256 {
			picture.Pix[i] = uint8(value)
		}
	}
}

func (t *thumbnailer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	small := t.scale(320, 240)
	t.sharpen(small)
	harness.Check(jpeg.Encode(w, small, nil))
}

func newThumbnailer() *thumbnailer {
	original := raster.NewGray(raster.Rect(0, 0, 1280, 960))
	for i := range original.Pix {
		original.SetGray(i%1280, i/1280, color.Gray{Y: uint8(i * i >> 7)})
	}
	return &thumbnailer{original}
}

func init() { register("throttled", serveThumbnails) }

func serveThumbnails() { underLoad(newThumbnailer(), traffic.Load{Clients: 8}) }

module blockops

go 1.19

module clocks

go 1.19
